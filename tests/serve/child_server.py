"""A server in a child process."""

import http.client
import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from tests.cli.child import ENVIRONMENT

SIGNALS = pytest.mark.skipif(os.name == "nt", reason="no such signals on Windows")


class Process:
    """A server in a child process."""

    def __init__(self, model, *options):
        words = ["serve", *model.options, "--names", model.names, "--port", "0", *options]
        self.child = subprocess.Popen(
            [sys.executable, "-m", "engine", *map(str, words)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = self.child.stdout.readline()
        assert self.said, self.child.communicate()[1]
        self.port = int(self.said.split()[0].rpartition(":")[2])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def plug(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def get(self, path):
        with closing(self.connect()) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def metric(self, name):
        lines = self.get("/metrics")[1].decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def ended(self):
        """Wait for the end and return the status and stderr."""
        _, err = self.child.communicate(timeout=30)
        return self.child.returncode, err
