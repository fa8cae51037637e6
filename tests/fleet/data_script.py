"""A user program with Detect in Ray Data; arguments: FOLDER CFG WEIGHTS NAMES OUT."""

import sys

import ray
import ray.data

from engine.fleet.detect import Detect

folder, cfg, weights, names, out = sys.argv[1:]
given = {"cfg": cfg, "weights": weights, "names": names, "threshold": 0.65, "batch": 4}

ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False)
# One worker takes both CPUs, so that tasks which read must not need any.
contents = ray.data.read_binary_files(folder, include_paths=True, num_cpus=0)
images = ray.data.read_images(f"{folder}/good", include_paths=True, num_cpus=0)
for name, pictures in (("contents", contents), ("images", images)):
    rows = pictures.map_batches(
        Detect,
        fn_constructor_kwargs=given,
        batch_size=5,
        num_cpus=2,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=2),
    )
    rows.write_parquet(f"{out}/{name}")
ray.shutdown()
