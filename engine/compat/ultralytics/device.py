"""The device of a call, in the forms that ultralytics takes."""

from __future__ import annotations

from typing import Any

from engine.backends import device_name

_LEFT_OUT = str.maketrans("", "", " ()[]'")  # as in "[0, 1]"
_IDLEST = "-1"  # ultralytics looks for an idle GPU; here it is the first one


class DeviceName(str):
    """The engine's device name, with the attributes of torch.device."""

    __slots__ = ()

    @property
    def type(self) -> str:
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Return the number of the first GPU, or None for a CPU."""
        number = self.partition(":")[2].partition(",")[0]
        return int(number) if self.type == "cuda" and number else None


def device_of(device: Any) -> str | None:
    """Return the engine's name for a device, or None for the network's own.

    A device is a case-insensitive name, the number of a GPU, a list of these, or a torch.device.
    """
    if isinstance(device, (list, tuple)):
        device = ",".join(map(str, device))
    is_of_torch = hasattr(device, "type") and hasattr(device, "index")
    if isinstance(device, str) or is_of_torch or str(device) == _IDLEST:
        device = str(device).translate(_LEFT_OUT).strip(",").lower()
    if device in (None, "", "none"):
        return None
    if device == "cpu:0":  # in torch a device number; in the engine it means threads
        return "cpu"
    return "cuda:0" if device in ("cuda", _IDLEST) else device_name(device)
