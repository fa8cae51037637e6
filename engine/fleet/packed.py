"""A model that travels: the bytes of its files, and how it is to be run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from engine.darknet import cfg as darknet_cfg
from engine.darknet import graph as darknet_graph
from engine.errors import ConfigError
from engine.files.naming import shown
from engine.fleet import assigned

if TYPE_CHECKING:
    from engine.detector import Detector

_CFG, _WEIGHTS = "net.cfg", "net.weights"


@dataclass(frozen=True, eq=False)
class PackedModel:
    files: Mapping[str, bytes]  # by their names relative to the .cfg
    labels: Sequence[str]
    options: Mapping[str, Any]  # of engine.load()

    @classmethod
    def of(
        cls, cfg: str | Path, weights: str | Path, labels: Sequence[str], **options: Any
    ) -> PackedModel:
        files = {_CFG: Path(cfg).read_bytes(), _WEIGHTS: Path(weights).read_bytes()}
        for node in darknet_graph.build(darknet_cfg.read(cfg)).nodes:
            if tree := getattr(node.layer, "tree", None):
                if Path(tree).is_absolute() or ".." in Path(tree).parts:
                    where = f"{shown(cfg)}:{node.line}: tree"
                    raise ConfigError(f"{where}: expected a name below the .cfg's folder")
                files[tree] = node.layer.context.find(tree).read_bytes()
        return cls(files, tuple(labels), options)

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides what is found, but the options."""
        whole = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            whole.update(f"{name} {len(content)}\n".encode())
            whole.update(content)
        whole.update("\n".join(self.labels).encode("utf-8", "surrogateescape"))
        return whole.hexdigest()

    def load(self, **where: Any) -> Detector:
        """A detector on the device and with the threads of assigned.load()."""
        with TemporaryDirectory(prefix="engine-") as folder:
            for name, content in self.files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            names = [Path(folder, _CFG), Path(folder, _WEIGHTS)]
            return assigned.load(*names, self.labels, **where, **self.options)
