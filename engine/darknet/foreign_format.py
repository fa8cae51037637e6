"""Recognise files that are not darknet weights, and suggest what to do about them."""

from __future__ import annotations

_SIGNATURES = (
    (b"version https://git-lfs", "a Git LFS pointer. Run: git lfs pull"),
    (b"PK\x03\x04", "a zip archive or a PyTorch model. Unpack it, or convert the model first"),
    (b"\x1f\x8b", "a gzip archive. Run: gunzip"),
    (b"BZh", "a bzip2 archive. Run: bunzip2"),
    (b"\xfd7zXZ\x00", "an xz archive. Run: unxz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive. Unpack it first"),
    (b"Rar!", "a rar archive. Unpack it first"),
    (b"\x80\x02", "a Python pickle, likely a PyTorch model. Convert it first"),
    (b"\x80\x03", "a Python pickle, likely a PyTorch model. Convert it first"),
    (b"\x80\x04", "a Python pickle, likely a PyTorch model. Convert it first"),
    (b"\x89HDF", "an HDF5 file, likely a Keras model. Convert it first"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"GGUF", "a GGUF model"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"[net", "a .cfg file. Are the two arguments swapped?"),
)


def describe(start: bytes) -> str:
    """Name the format of a file by its first bytes; return "" if it may be darknet's."""
    for signature, name in _SIGNATURES:
        if start.startswith(signature):
            return name
    if start[8:9] == b"{" and start[4:8] == bytes(4):
        return "a safetensors model. Convert it first"
    if start[4:8] == b"TFL3":
        return "a TensorFlow Lite model. Convert it first"
    if start[:1] == b"\x08" and start[2:3] in (b"\x12", b"\x1a", b"\x3a"):
        return "an ONNX model. Convert it first"
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        return "a web page. Download the raw file instead"
    if text.startswith((b"[net", b"[network", b"#", b";")):
        return "a text file. Is it the .cfg?"
    if _is_text(start):
        return "a text file. Did the download fail?"
    return ""


def _is_text(start: bytes) -> bool:
    return all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start)
