"""Pictures made to cost much cost their own clients, and nobody else."""

import asyncio
import io
import os
import signal
import sys
import threading
from contextlib import closing

import pytest
from PIL import Image

from engine.vision.decode_pool import DecodeLimits, DecodePool
from tests.serve import running
from tests.serve.child_server import SIGNALS
from tests.serve.running import ask, serving, until
from tests.vision.test_decode_pool import is_running
from tools.load import attackers
from tools.load.hostile_pictures import COSTLY

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def workers_of(process):
    """Return the numbers of the processes that a server has started."""
    with open(f"/proc/{process.child.pid}/task/{process.child.pid}/children") as file:  # noqa: PTH123
        return [int(each) for each in file.read().split()]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such timer")
def test_a_picture_that_takes_too_long_is_an_error_of_its_own(detector, pictures, monkeypatch):
    costly = encoded(Image.new("RGB", (6000, 6000)))
    with closing(DecodePool(2, DecodeLimits(seconds=0.1))) as decoders:
        monkeypatch.setattr(running, "decoders", lambda: decoders)
        with serving(detector) as server:
            connections = [server.connect() for _ in range(4)]
            for connection in connections:
                connection.request("POST", "/detect", costly)
            for picture in pictures[:4]:
                assert server.post("/detect", picture).status == 200
            for connection in connections:
                with closing(connection):
                    answer = connection.getresponse()
                    assert answer.status == 422
                    assert answer.read() == (
                        b'{"error":"picture: cannot be decoded within 0.1 s of processor time"}'
                    )
            until(server.holds_nothing)


def test_small_pictures_are_answered_while_large_ones_wait_for_memory(detector, pictures):
    large = encoded(Image.new("L", (1500, 1200)))
    with serving(detector, memory_bytes=48 << 20) as server:
        memory = server.service.picture_memory
        held = memory.reserve(memory.largest)
        with closing(server.connect()) as connection:
            connection.request("POST", "/detect", large)
            until(lambda: memory._next_large)
            for picture in pictures:
                assert server.post("/detect", picture).status == 200
            held.release()
            assert connection.getresponse().status == 200
        until(server.holds_nothing)


def test_pictures_of_one_request_are_decoded_by_several_processes(detector, pictures):
    body = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="image"; filename="%d"\r\n\r\n%s\r\n'
        % (number, content)
        for number, content in enumerate([*pictures, b"\x89PNG\r\n\x1a\n"])
    )
    with serving(detector) as server, closing(server.connect()) as connection:
        form = "multipart/form-data; boundary=x"
        reply = ask(connection, "POST", "/detect", body + b"--x--", Content_Type=form)
        assert reply.status == 200
        assert ["error" in each for each in reply.found["images"]] == [False] * 8 + [True]


@pytest.mark.slow
@LINUX
@SIGNALS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_no_process_outlives_the_server(start, pictures, number):
    process = start()
    with closing(process.connect()) as connection:
        assert ask(connection, "POST", "/detect", pictures[0]).status == 200
    workers = workers_of(process)
    assert len(workers) >= 2
    process.child.send_signal(number)
    assert process.ended() == (0 if number == signal.SIGTERM else -number, "")
    until(lambda: not any(map(is_running, workers)), 30)


@pytest.mark.slow
def test_honest_clients_are_answered_under_attack(detector, pictures):
    """A short form of tools/attack_serve.py."""
    costly = [COSTLY[name]() for name in ("BMP of runs", "PGM of comments in text", "GIF of junk")]
    bombs = [encoded(Image.new("L", (1500, 1200)))]
    bodies = {attackers.BOMB: bombs, attackers.COSTLY: costly, attackers.HEAVY: bombs}
    with serving(detector, memory_bytes=48 << 20) as server:
        attack = attackers.Attack(server.port, 1.5, 12, bodies)
        found = []
        thread = threading.Thread(
            target=lambda: found.append(asyncio.run(attackers.attack_from_here(attack)))
        )
        thread.start()
        answers = []
        while thread.is_alive():
            answers.append(server.post("/detect", pictures[0]).status)
        thread.join()
        assert set(answers) == {200}
        until(server.holds_nothing)
    (counts,) = found
    assert counts.of(attackers.BOMB).get(200)
    assert set(counts.of(attackers.COSTLY)) <= {0, 422, 503}
    assert counts.of(attackers.COSTLY)[422]
    assert set(counts.of(attackers.CLOSING)) <= {0, 413, 422, 503}


@pytest.mark.slow
@LINUX
def test_resident_memory_stays_below_its_limit_and_a_constant(start, pictures):
    """Each of eight clients sends pictures that need most of the memory."""
    limit, mib = 128, 1 << 20
    process = start("--memory", limit, "--max-pixels", 10**8)
    bombs = [
        encoded(Image.new("RGB", (2400, 2400))),
        encoded(Image.new("LA", (2400, 2400))),
        encoded(Image.effect_noise((1300, 1300), 90).convert("RGB"), "WEBP"),
        encoded(Image.new("F", (1500, 1500)), "TIFF", compression="tiff_deflate"),
    ]
    workers = workers_of(process)
    idle = sum(map(resident, [process.child.pid, *workers]))
    statuses = []

    def attack(number):
        with closing(process.connect()) as connection:
            for turn in range(2):
                reply = ask(connection, "POST", "/detect", bombs[(number + turn) % len(bombs)])
                statuses.append(reply.status)

    clients = [threading.Thread(target=attack, args=(number,)) for number in range(8)]
    for client in clients:
        client.start()
    most = 0
    while any(client.is_alive() for client in clients):
        most = max(most, sum(map(resident, [process.child.pid, *workers])))
        clients[0].join(0.02)
    for client in clients:
        client.join()
    assert statuses == [200] * 16
    assert most - idle < (limit + 64) * mib
    with closing(process.connect()) as connection:
        assert ask(connection, "POST", "/detect", pictures[0]).status == 200


def resident(process):
    with open(f"/proc/{process}/statm") as file:  # noqa: PTH123 - not a file on a disk
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
