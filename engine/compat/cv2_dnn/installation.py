"""install(): put the functions of this package into an installed cv2 of any version."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from inspect import isfunction
from types import ModuleType
from typing import Any, TypeVar, cast

from engine.compat.cv2_dnn import constants, files, models, suppression
from engine.compat.cv2_dnn.net import Net, readNet, readNetFromDarknet
from engine.errors import EngineError, InputError

_MARK = "__engine_darknet__"

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


def install(*, epsilon: float = files.DARKNET_EPSILON) -> ModuleType:
    """Let cv2.dnn of any OpenCV read darknet's files, and return cv2.

    readNet() and the models give other files and networks to OpenCV as before. Functions that need
    no network, such as blobFromImage(), stay OpenCV's; NMSBoxes() is replaced, so that scripts for
    OpenCV before 4.5.4 run, too. `epsilon` is what batch normalisation adds to the variance: 1e-6
    gives OpenCV's numbers instead of darknet's. Errors can be caught as cv2.error. Calling this
    again does nothing.
    """
    try:
        cv2 = import_module("cv2")
    except ImportError:
        raise InputError(
            "cv2: is not installed. Run: pip install opencv-python, or use this module without it"
        ) from None
    dnn = cv2.dnn
    if getattr(dnn.readNet, _MARK, False):
        return cv2
    translated = _translating(cv2.error)
    for name in ("NMSBoxes", "NMSBoxesBatched"):
        setattr(dnn, name, translated(getattr(suppression, name)))
    for name, value in vars(constants).items():
        if name.startswith("DNN_") and not hasattr(dnn, name):
            setattr(dnn, name, value)
    net_class = _subclass(Net, translated)

    @wraps(readNetFromDarknet)
    def read_darknet(cfgFile: Any, darknetModel: Any = "") -> Net:
        return net_class.of_darknet(cfgFile, darknetModel, epsilon=epsilon)

    def read(model: Any, config: Any = "", framework: Any = "") -> Net:
        return net_class.of_files(model, config, framework, epsilon=epsilon)

    for name in ("Model", "DetectionModel", "ClassificationModel"):
        ours = _subclass(getattr(models, name), translated, _read=staticmethod(read))
        made = _model_class(ours, getattr(dnn, name, None))
        setattr(dnn, name, made)
        setattr(cv2, f"dnn_{name}", made)
    dnn.readNetFromDarknet = translated(read_darknet)
    dnn.readNet = translated(_read_any(dnn.readNet, read))
    return cv2


def _translating(error: type[Exception]) -> Callable[[_Function], _Function]:
    """Return a decorator that lets `except cv2.error` catch the errors of a function, too."""

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except EngineError as caught:
                if isinstance(caught, error):
                    raise
                kind = type(caught)
                raise type(kind.__name__, (kind, error), {})(str(caught)) from None

        return cast("_Function", call)

    return decorate


def _subclass(ours: _Class, translated: Callable[[Any], Any], **members: Any) -> _Class:
    """Return a class whose public methods raise errors of OpenCV."""
    for name in dir(ours):
        member = getattr(ours, name)
        if (name[0] != "_" or name == "__init__") and isfunction(member):
            members[name] = translated(member)
    return cast("_Class", type(ours.__name__, (ours,), {"__doc__": ours.__doc__, **members}))


def _read_any(original: Any, read_darknet: Callable[..., Net]) -> Any:
    """Return a readNet() that gives all files but darknet's to OpenCV."""

    def read(model: Any, config: Any = "", framework: Any = "") -> Any:
        is_buffers = isinstance(model, str) and files.is_buffer(config)
        chosen = model if is_buffers else framework
        if files.is_darknet(model, config, framework=chosen):
            return read_darknet(model, config, framework)
        return original(model, config, framework)

    read.__name__ = "readNet"
    read.__doc__ = readNet.__doc__
    setattr(read, _MARK, True)
    return read


def _model_class(ours: type[models.Model], theirs: Any) -> type[models.Model]:
    """Return our class, except that networks of OpenCV make an object of OpenCV's class."""

    def create(cls: type[models.Model], *args: Any, **named: Any) -> Any:
        model = next(iter((*args, *named.values())), None)
        if theirs is None or isinstance(model, Net) or files.is_darknet(*args, *named.values()):
            return object.__new__(cls)
        return theirs(*args, **named)

    return type(ours.__name__, (ours,), {"__new__": create, "__doc__": ours.__doc__})
