"""Serve a detector with Triton until stdin ends: PORT METRICS_PORT CFG WEIGHTS NAMES."""

import sys

import engine
from engine.fleet import triton

port, metrics_port, cfg, weights, names = sys.argv[1:]
options = {"device": "cpu", "threshold": 0.65, "batch": 4}
config = {"http_port": int(port), "metrics_port": int(metrics_port), "allow_grpc": False}
with (
    engine.load(cfg, weights, names, **options) as detector,
    triton.server(detector, wait_ms=200, **config) as server,
):
    server.run()
    print("ready", flush=True)
    sys.stdin.read()
