"""What is wrong with a model that was uploaded."""

from trtforge.contract.failures.code import Code

MODELS = (
    Code(
        "digest_mismatch",
        422,
        "The bytes have another sha256 than the address says.",
        "Take the digest with `sha256sum` and upload again.",
    ),
    Code(
        "not_an_onnx_model",
        422,
        "The bytes are not an ONNX model.",
        "Upload the .onnx file itself, not a page, pointer or part of it.",
    ),
    Code(
        "model_invalid",
        422,
        "The model breaks a rule of ONNX.",
        "Run `onnx.checker.check_model` on it and export it again.",
    ),
    Code(
        "model_unreadable",
        422,
        "Reading the model took too much time or memory, or crashed the reader.",
        "Simplify the model or export it again.",
    ),
    Code(
        "version_unsupported",
        422,
        "The opset or IR version is newer than this service reads.",
        "Export with an opset that is named, or convert it.",
    ),
    Code(
        "external_data_missing",
        422,
        "The model keeps weights in other files.",
        "Upload those files too, or save it as one file.",
    ),
    Code(
        "files_missing",
        409,
        "Some files of this model are not here.",
        "Upload those that are listed with `PUT /v1/files/{digest}`, then ask again.",
    ),
    Code(
        "upload_offset",
        409,
        "The part does not begin where the upload stands.",
        "Send the bytes from `have` on; HEAD of the same address tells it too.",
    ),
    Code(
        "external_data_unsafe",
        422,
        "The model points outside its own files.",
        "Save weights under plain file names beside the graph, with offsets and lengths inside the files.",
    ),
    Code(
        "model_too_complex",
        422,
        "The model has too many nodes or tensors, or functions that call themselves or expand without measure.",
        "Inline its functions, simplify it, and export it again.",
    ),
    Code(
        "type_unsupported",
        422,
        "An input or output has a type that TensorRT does not take.",
        "Move the part that works with this type out of the model, or cast at its border.",
    ),
    Code(
        "quantization_unsupported",
        422,
        "TensorRT does not quantize in this way.",
        "Quantize symmetrically to 8 bits: scales above 0, zero points of 0.",
    ),
    Code("model_unknown", 422, "No such model is here.", "Upload it first with `PUT /v1/models/{digest}`."),
)
