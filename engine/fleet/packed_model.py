"""A model as bytes, to be sent to other machines."""

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
from engine.fleet import ray_resources
from engine.scales import path_beside

if TYPE_CHECKING:
    from engine.detector import Detector

_CFG, _WEIGHTS = "net.cfg", "net.weights"


@dataclass(frozen=True, eq=False)
class PackedModel:
    """The files of a model, its labels and the options to load it with."""

    files: Mapping[str, bytes]  # by their names relative to the .cfg
    labels: Sequence[str]
    options: Mapping[str, Any]  # for engine.load()
    task: str = "detector"

    @classmethod
    def pack(
        cls,
        cfg: str | Path,
        weights: str | Path,
        labels: Sequence[str],
        *,
        task: str = "detector",
        **options: Any,
    ) -> PackedModel:
        files = {_CFG: Path(cfg).read_bytes(), _WEIGHTS: Path(weights).read_bytes()}
        scales = options.pop("scales", None) or path_beside(weights)
        if options.get("precision") == "int8":
            files[str(path_beside(_WEIGHTS))] = Path(scales).read_bytes()
        for node in darknet_graph.build(darknet_cfg.read(cfg)).nodes:
            if tree := getattr(node.layer, "tree", None):
                if Path(tree).is_absolute() or ".." in Path(tree).parts:
                    where = f"{shown(cfg)}:{node.line}: tree"
                    raise ConfigError(f"{where}: expected a file in the folder of the .cfg")
                found = node.layer.context.find_tree(tree, node.layer.at("tree"))
                files[tree] = found.read_bytes()
        return cls(files, tuple(labels), options, task)

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))

    @property
    def digest(self) -> str:
        """The SHA-256 of the files and the labels."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)}\n".encode())
            digest.update(content)
        digest.update("\n".join(self.labels).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def load(self, **resources: Any) -> Detector:
        """Load the detector; `resources` are the device and threads of ray_resources.load()."""
        with TemporaryDirectory(prefix="engine-") as folder:
            for name, content in self.files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            paths = [Path(folder, _CFG), Path(folder, _WEIGHTS)]
            options = {**resources, **self.options}
            return ray_resources.load(*paths, self.labels, task=self.task, **options)
