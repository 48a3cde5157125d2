"""The service. Other people's programs install `trtforge`; nobody but us imports this package."""

__version__ = "0.1.0"
