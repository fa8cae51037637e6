"""install(): put the functions of this package into an installed cv2 of any version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from inspect import isfunction
from types import ModuleType
from typing import Any, TypeVar, cast

from engine.compat.cv2_dnn import constants, files, models, suppression
from engine.compat.cv2_dnn.net import Net, readNet, readNetFromDarknet
from engine.errors import ConfigError, EngineError, InputError, WeightsError

_MARK = "__engine_darknet__"
_ERROR, _BAD_ARGUMENT, _PARSE_ERROR = -2, -5, -212  # OpenCV's codes

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


@dataclass
class _Settings:
    """Defaults for networks without an epsilon of their own; a later install() may change them."""

    epsilon: float = files.DARKNET_EPSILON


def install(*, epsilon: float | None = None) -> ModuleType:
    """Make any version's cv2.dnn read darknet's files, and return cv2.

    readNet() and the models still pass other files and networks to OpenCV. Functions that need no
    network, such as blobFromImage(), stay OpenCV's; NMSBoxes() is replaced, so that scripts for
    OpenCV before 4.5.4 work, too. `epsilon`, which batch normalisation adds to the variance,
    applies to networks read later: 1e-6 gives OpenCV's numbers instead of darknet's. Errors can be
    caught as cv2.error. Calling this again changes only `epsilon`, if given.
    """
    try:
        cv2 = import_module("cv2")
    except ImportError:
        raise InputError(
            "cv2: is not installed. Run: pip install opencv-python, or use this module without it"
        ) from None
    dnn = cv2.dnn
    settings = getattr(dnn.readNet, _MARK, None)
    is_installed = settings is not None
    settings = settings or _Settings()
    if epsilon is not None:
        settings.epsilon = files.checked_epsilon(epsilon)
    if is_installed:
        return cv2
    translated = _translating(cv2.error)
    for name in ("NMSBoxes", "NMSBoxesBatched"):
        setattr(dnn, name, translated(getattr(suppression, name)))
    for name, value in vars(constants).items():
        if name.startswith("DNN_") and not hasattr(dnn, name):
            setattr(dnn, name, value)
    net_class = _subclass(Net, translated)

    @wraps(readNetFromDarknet)
    def read_darknet(cfgFile: Any, darknetModel: Any = "", *, epsilon: float | None = None) -> Net:
        chosen = settings.epsilon if epsilon is None else epsilon
        return net_class.of_darknet(cfgFile, darknetModel, epsilon=chosen)

    @wraps(readNet)
    def read(
        model: Any, config: Any = "", framework: Any = "", *, epsilon: float | None = None
    ) -> Net:
        chosen = settings.epsilon if epsilon is None else epsilon
        return net_class.of_files(model, config, framework, epsilon=chosen)

    dnn.Net = _net_class(getattr(dnn, "Net", None))
    cv2.dnn_Net = dnn.Net  # type: ignore[attr-defined]
    for name in ("Model", "DetectionModel", "ClassificationModel"):
        ours = _subclass(getattr(models, name), translated, _read=staticmethod(read))
        made = _model_class(ours, getattr(dnn, name, None))
        setattr(dnn, name, made)
        setattr(cv2, f"dnn_{name}", made)
    dnn.readNetFromDarknet = translated(read_darknet)
    dnn.readNet = translated(_read_any(dnn.readNet, read))
    setattr(dnn.readNet, _MARK, settings)
    return cv2


def _translating(error: type[Exception]) -> Callable[[_Function], _Function]:
    """Return a decorator that makes the errors of a function instances of cv2.error as well."""

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except (EngineError, TypeError, ValueError) as caught:  # from arguments of wrong types
                if isinstance(caught, error):  # translated by an inner function
                    vars(caught)["func"] = function.__name__
                    raise
                raise _as_of_opencv(caught, error, function.__name__) from None

        return cast("_Function", call)

    return decorate


def _as_of_opencv(caught: Exception, error: type[Exception], function: str) -> Exception:
    """Return an error that also belongs to OpenCV's class and has its attributes."""
    is_ours = isinstance(caught, EngineError)
    kind = type(caught) if is_ours else TypeError if isinstance(caught, TypeError) else ValueError
    text = str(caught)
    if not is_ours and f"{function}()" not in text:
        text = f"{function}: {text}"
    made: Any = type(kind.__name__, (kind, error), {})(text)
    if isinstance(caught, InputError) or not is_ours:
        made.code = _BAD_ARGUMENT
    else:
        is_of_file = isinstance(caught, (ConfigError, WeightsError))
        made.code = _PARSE_ERROR if is_of_file else _ERROR
    made.err = made.msg = text
    made.func, made.file, made.line = function, "", 0
    return cast("Exception", made)


def _subclass(ours: _Class, translated: Callable[[Any], Any], **members: Any) -> _Class:
    """Return a subclass whose public methods raise OpenCV's errors."""
    for name in dir(ours):
        member = getattr(ours, name)
        if (name[0] != "_" or name == "__init__") and isfunction(member):
            members[name] = translated(member)
    return cast("_Class", type(ours.__name__, (ours,), {"__doc__": ours.__doc__, **members}))


def _read_any(original: Any, read_darknet: Callable[..., Net]) -> Any:
    """Return a readNet() that passes all files but darknet's to OpenCV."""

    @wraps(read_darknet)
    def read(model: Any, config: Any = "", framework: Any = "", *more: Any, **named: Any) -> Any:
        is_buffers = isinstance(model, str) and files.is_buffer(config)
        chosen = model if is_buffers else framework
        if files.is_darknet(model, config, framework=chosen):
            return read_darknet(model, config, framework, *more, **named)
        return original(model, config, framework, *more, **named)

    return read


class _Either(type):
    """A metaclass for classes that stand for an engine class and the OpenCV class it replaces."""

    kinds: tuple[type, ...] = ()

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.kinds)


def _net_class(theirs: Any) -> type:
    """Return a class for isinstance() that creates OpenCV networks and has their static methods."""
    if theirs is None:
        return Net

    def create(cls: type, *args: Any, **named: Any) -> Any:
        return theirs(*args, **named)

    made = _Either("Net", (theirs,), {"__new__": create, "__doc__": theirs.__doc__})
    made.kinds = (Net, theirs)
    return made


def _model_class(ours: type[models.Model], theirs: Any) -> type[models.Model]:
    """Return the engine's class, which creates an OpenCV model when given an OpenCV network."""

    def create(cls: type[models.Model], *args: Any, **named: Any) -> Any:
        model = next(iter((*args, *named.values())), None)
        if theirs is None or isinstance(model, Net) or files.is_darknet(*args, *named.values()):
            return object.__new__(cls)
        return theirs(*args, **named)

    made = _Either(ours.__name__, (ours,), {"__new__": create, "__doc__": ours.__doc__})
    made.kinds = (ours, *([] if theirs is None else [theirs]))
    return cast("type[models.Model]", made)
