"""A host stand-in for a GPU whose allocations, launches and copies fail on request."""

from threading import Lock
from types import SimpleNamespace
from weakref import WeakSet

from engine.backends.cuda.driver import pycuda_loader
from engine.backends.cuda.driver.context import Context
from tests.backends.cuda.host_device import HostContext, HostDevice


class CardError(Exception):
    """A stand-in for pycuda.driver.Error."""


class CardMemoryError(CardError):
    """A stand-in for pycuda.driver.MemoryError."""


LOST = "cuStreamSynchronize failed: the GPU is lost"


class Trouble:
    """Counts calls of the driver and makes the `at`-th fail, or all from then on."""

    def __init__(self):
        self.kind, self.at, self.lasts = "", 0, False
        self.count = 0

    def expect(self, kind, at, *, lasts=False):
        self.kind, self.at, self.lasts, self.count = kind, at, lasts, 0

    def meet(self, *kinds):
        if self.kind not in kinds:
            return
        self.count += 1
        if self.count == self.at or (self.lasts and self.count > self.at > 0):
            if self.kind == "memory":
                raise CardMemoryError("cuMemAlloc failed: out of memory")
            raise CardError(LOST if self.lasts else "cuLaunchKernel failed: invalid argument")

    @property
    def has_come(self):
        return self.count >= self.at


class FaultyContext(HostContext):
    """A context that raises errors in the same form as a real one."""

    _translated = Context._translated

    def __init__(self, trouble):
        super().__init__("cuda:0", memory=1 << 34, runs_kernels=True)
        allocate, lock = self.driver.mem_alloc, self.driver.pagelocked_empty

        def mem_alloc(size):
            trouble.meet("memory", "lost")
            return allocate(size)

        def pagelocked_empty(values, kind):
            trouble.meet("memory", "lost")
            return lock(values, kind)

        self.driver.mem_alloc, self.driver.pagelocked_empty = mem_alloc, pagelocked_empty
        for name in ("enter", "wait", "upload", "register"):
            setattr(self.driver_api, name, self._troubled(getattr(self.driver_api, name), trouble))
        self._trouble = trouble

    def _troubled(self, function, trouble):
        """Wrap a function so that it fails on request, with a DeviceError as on a real GPU."""

        def called(*arguments):
            with pycuda_loader.translate_errors(self.name):
                trouble.meet("lost")
            return function(*arguments)

        return called

    def kernels(self, precision):
        made = super().kernels(precision)
        launch = made.launch

        def troubled(*arguments, **options):
            self._trouble.meet("launch", "lost")
            return launch(*arguments, **options)

        made.launch = troubled
        return made


class FaultyDevice(HostDevice):
    def __init__(self):
        self.trouble = Trouble()
        self.name = "cuda:0"
        self.measured = {}
        self._tuner = None
        self._turn = Lock()
        self._programs = WeakSet()
        self._decoders = []
        self.context = self._context = FaultyContext(self.trouble)


def module():
    """Return a stand-in for pycuda.driver with its error classes."""
    return SimpleNamespace(
        Error=CardError, MemoryError=CardMemoryError, mem_get_info=lambda: (1 << 29, 8 << 30)
    )
