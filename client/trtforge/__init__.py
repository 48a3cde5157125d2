"""Client of trtforge, a build service for TensorRT engines."""

__version__ = "0.1.0"
