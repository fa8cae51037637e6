"""A server with a GPU: scaling on the device, overlapping runs, batches of powers of two."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import engine
from tests.backends.cuda.cards import CARDS, open_card
from tests.serve.running import load, serving, until
from tests.serve.test_batching import scores


@pytest.fixture(params=CARDS)
def on_the_card(request, model, monkeypatch):
    with open_card(request.param) as card:
        with monkeypatch.context() as patch:
            patch.setattr("engine.backends.open_device", lambda name: card)
            opened = engine.load(
                model.cfg, model.weights, model.names, device="cuda:0", batch=6, threshold=0.3
            )
        with opened:
            yield opened


@pytest.mark.slow
def test_clients_get_the_same_as_on_a_cpu(on_the_card, model, pictures):
    sizes = Counter()
    run = on_the_card.run

    def counted(batch, settings=None):
        sizes[len(batch.placed)] += 1
        return run(batch, settings)

    on_the_card.run = counted
    assert on_the_card.runs_at_once > 1
    expected = {}
    for threshold in (0.3, 0.35):
        with load(model, threshold=threshold) as alone:
            for number, picture in enumerate(pictures):
                expected[number, threshold] = Counter(
                    label for label, _ in scores(alone(picture).to_dict())
                )
    with serving(on_the_card) as server, ThreadPoolExecutor(16) as pool:

        def ask(key):
            number, threshold = key
            found = server.post(f"/detect?threshold={threshold}", pictures[number]).found
            return Counter(each["label"] for each in found["detections"])

        keys = [*expected] * 6
        for key, labels in zip(keys, pool.map(ask, keys), strict=True):
            # rounding may move a score across the threshold
            assert (labels - expected[key]).total() <= 1, key
            assert (expected[key] - labels).total() <= 1, key
        until(server.holds_nothing)
        ready = server.get("/metrics").content.decode()
    assert set(sizes) <= {1, 2, 4, 6}
    assert max(sizes) > 1
    assert int(re.search(r"^engine_pictures_total (\d+)$", ready, re.M)[1]) == len(keys)
