"""OrtDevice: turn plans into ONNX models and load them into ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakSet

from engine import extras
from engine.backends.base import PrecisionError
from engine.backends.cpu.workers import thread_count
from engine.backends.ort.program import OrtProgram
from engine.errors import DeviceError, InputError, within_memory
from engine.export import onnx
from engine.plan.build import Plan

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "directml": "DmlExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}

_ERRORS_ONLY = 3  # of ONNX Runtime's log levels


class OrtDevice:
    """One of ONNX Runtime's execution providers; its CPU runs what the provider cannot."""

    passes = ("drop_unread", *onnx.PASSES)

    def __init__(self, provider: str, threads: int | None = None) -> None:
        self._runtime = _import_runtime()
        self._provider = PROVIDERS[provider]
        if self._provider not in self._runtime.get_available_providers():
            installed = [
                name
                for name, each in PROVIDERS.items()
                if each in self._runtime.get_available_providers()
            ]
            raise DeviceError(
                f"ort:{provider}: expected an ONNX Runtime with {self._provider}, got one with "
                f"{', '.join(installed)}. Install the onnxruntime package for this hardware"
            )
        self.name = "ort" if provider == "cpu" else f"ort:{provider}"
        if threads is not None:
            self.name = f"ort:{threads}"
        self.threads = threads or thread_count()
        self._programs: WeakSet[OrtProgram] = WeakSet()
        self._is_closed = False

    def describe(self) -> str:
        return f"ONNX Runtime {self._runtime.__version__}, {self._provider}, {self.threads} threads"

    def compile(self, plan: Plan, *, batch: int = 1, precision: str = "float32") -> OrtProgram:
        if self._is_closed:
            raise DeviceError(f"{self.name}: the device is closed")
        if precision != "float32":
            raise PrecisionError(f"{self.name}: precision: expected float32, got {precision!r}")
        if batch < 1:
            raise InputError(f"{self.name}: batch: expected at least 1, got {batch}")
        with within_memory(self.name):
            heads = (head.src for head in plan.heads)
            whole = replace(plan, outputs=tuple(dict.fromkeys((*plan.outputs, *heads))))
            content = onnx.serialize(whole, plan.titles)
            program = OrtProgram(plan, whole.outputs, self._session(content), batch=batch)
        self._programs.add(program)
        return program

    def close(self) -> None:
        self._is_closed = True
        for program in tuple(self._programs):
            program.close()

    def _session(self, content: bytes) -> Any:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = _ERRORS_ONLY
        providers = list(dict.fromkeys((self._provider, PROVIDERS["cpu"])))
        try:
            return self._runtime.InferenceSession(content, options, providers=providers)
        except Exception as error:  # ONNX Runtime has an exception class for each status
            reason = " ".join(str(error).split())
            raise DeviceError(f"{self.name}: cannot load the network: {reason[:300]}") from None


def _import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise DeviceError(
            f"ort: onnxruntime is not installed. Run: {extras.command('ort')}"
        ) from None
    return onnxruntime
