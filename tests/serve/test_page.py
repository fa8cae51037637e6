"""The pages at / and /docs in a real browser.

ENGINE_AXE=node_modules/axe-core/axe.min.js (npm install axe-core) adds checks of accessibility.
"""

import base64
import io
import json
import os
import re
import shutil
import threading
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import needs

pytest.importorskip("selenium", reason=needs.advice("selenium"))

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import engine
from engine.vision.colours import colour_of
from engine.vision.image import read
from tests.pictures import write_video
from tests.serve.running import load, serving
from tests.serve.test_requests import website

from engine.serve import remote_pictures  # isort: skip - `running` skips this without the extra
from engine.serve.access import Access  # isort: skip
from engine.serve.live import LiveOptions  # isort: skip

pytestmark = pytest.mark.slow

PARCEL = Path(engine.serve.__file__).parent / "page/parcel.jpg"  # codes of every class
BOX = {"left": 1, "top": 2, "right": 30, "bottom": 20}

DROP = """
const [target, name, bytes] = arguments;
const files = new DataTransfer();
files.items.add(new File([new Uint8Array(bytes)], name, {type: "image/png"}));
for (const kind of ["dragenter", "dragover", "drop"])
  target.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: files}));
"""

PASTE = """
const [name, bytes] = arguments;
const clipboardData = new DataTransfer();
clipboardData.items.add(new File([new Uint8Array(bytes)], name, {type: "image/png"}));
dispatchEvent(new ClipboardEvent("paste", {clipboardData}));
"""

SAVE = """
window.saved = [];
const blobs = new Map();
const create = URL.createObjectURL;
URL.createObjectURL = (blob) => {
  const url = create.call(URL, blob);
  blobs.set(url, blob);
  return url;
};
HTMLAnchorElement.prototype.click = function () {
  const entry = [this.download];
  window.saved.push(entry);
  const reader = new FileReader();
  reader.onload = () => entry.push(reader.result.split(",")[1]);
  reader.readAsDataURL(blobs.get(this.href));
};
"""

HANG = """
fetch = (path, { signal }) => new Promise((resolve, reject) => {
  signal.addEventListener("abort", () => {
    window.aborted = true;
    reject(signal.reason);
  });
});
"""

HOLD = """
const ask = fetch;
const released = new Promise((resolve) => (window.release = resolve));
fetch = (...given) => released.then(() => ask(...given));
"""

PIXELS = """
const picture = document.getElementById("picture");
const canvas = document.createElement("canvas");
[canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
canvas.getContext("2d").drawImage(picture, 0, 0);
return canvas.toDataURL("image/png").split(",")[1];
"""

SCORE = """
const threshold = document.getElementById("threshold");
threshold.value = arguments[0] ?? window.kept.score;
for (const kind of ["input", "change"]) threshold.dispatchEvent(new Event(kind));
"""

KEEP = """
window.kept = { fetch, score: document.getElementById("threshold").value };
"""

RESET = f"""
if (!window.kept) return false;
fetch = window.kept.fetch;
document.getElementById("clear").click();
{SCORE}
document.activeElement.blur();
scrollTo(0, 0);
return true;
"""

# One short command: finding an element and asking Selenium for its text takes four times as long.
TEXTS = """
const seen = { visibilityProperty: true, opacityProperty: true };
return [...document.querySelectorAll(arguments[0])]
  .map((each) => (each.checkVisibility(seen) ? each.innerText.trim() : ""));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if not (chromium and driver):
        pytest.skip("no Chromium. Install it, for example: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=900,1000",
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def detector(model):
    """Open the model of `server` such that it finds about twenty objects in each picture.

    With eighty boxes, the browser takes longer for their layout than for everything else.
    """
    with load(model, batch=4, threshold=0.4) as opened:
        yield opened


@pytest.fixture
def fresh(browser, server):
    """Load the page, for a test that looks at how it starts or that changes it for good."""
    return Page(browser, server)


@pytest.fixture
def page(browser, server, request):
    with reused(browser, server, request.session) as page:
        yield page


@contextmanager
def reused(browser, server, session):
    """Take over the page of an earlier test, or load it: loading takes longer than most tests.

    Only a page that was opened here is taken over, and only if all tests have passed since. It is
    as after a load, except for classes that a test left switched off, and for what its scripts
    replaced other than `fetch`.
    """
    failed = session.testsfailed
    page = Page(browser, server, may_reuse=True)
    yield page
    if session.testsfailed > failed:
        browser.get("about:blank")


class Page:
    def __init__(self, browser, server, path="", *, is_open=True, may_reuse=False):
        browser.get_log("performance"), browser.get_log("browser")
        self.browser = browser
        self.address = f"http://{server.host}:{server.port}/"
        if may_reuse and browser.current_url == self.address and browser.execute_script(RESET):
            return
        browser.get(self.address + path)
        if is_open:
            self.wait(lambda: self.text("#facts"))
        if may_reuse:
            browser.execute_script(KEEP)

    def wait(self, is_so):
        stale = [StaleElementReferenceException]  # the page makes lists anew
        waiting = WebDriverWait(self.browser, 20, 0.05, ignored_exceptions=stale)
        return waiting.until(lambda _: is_so())

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        (found,) = self.all(selector)
        return found

    def text(self, selector):
        (text,) = self.texts(selector)
        return text

    def texts(self, selector):
        """Return the text that is seen of each element."""
        return self.browser.execute_script(TEXTS, selector)

    def rows(self):
        return self.browser.execute_script(
            "return [...document.querySelectorAll('#rows .row')]"
            ".map((row) => [...row.querySelectorAll('.name, .value, .where')]"
            ".map((cell) => cell.textContent));"
        )

    def wait_for(self, name):
        """Wait until the result of the picture `name` is shown."""
        self.wait(
            lambda: (
                self.text("#caption").startswith(f"{name} ·") and self.one("#result").is_displayed()
            )
        )

    def saved(self):
        """Return the name and the content of the next download."""
        entry = self.wait(
            lambda: self.browser.execute_script(
                "return window.saved[0]?.length > 1 && window.saved.shift();"
            )
        )
        return entry[0], base64.b64decode(entry[1])

    @contextmanager
    def resized(self, width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield
        finally:
            self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def violations(self):
        self.browser.execute_script(Path(os.environ["ENGINE_AXE"]).read_text(encoding="utf-8"))
        return self.browser.execute_async_script(
            "const done = arguments[0];"
            "axe.run().then(({violations}) => done(violations.map(({id}) => id)));"
        )

    def choose(self, path):
        self.one("#file").send_keys(str(path))

    def drop(self, name, content):
        self.browser.execute_script(DROP, self.one("#drop"), name, list(content))

    def complaints(self):
        return [entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]

    def events(self, name):
        """Return the parameters of new events of the network."""
        logged = (json.loads(each["message"]) for each in self.browser.get_log("performance"))
        messages = [each["message"] for each in logged]
        return [each["params"] for each in messages if each["method"] == f"Network.{name}"]

    def addresses(self):
        """Return the address of every network request."""
        return {each["request"]["url"] for each in self.events("requestWillBeSent")}


def found_in(detections):
    """Return the rows that the page shows for detections."""
    rows = []
    for found in detections:
        width, height = found.box.width, found.box.height
        left, top, width, height = (
            int(np.floor(value + 0.5))  # as JavaScript rounds
            for value in (*found.box[:2], width, height)
        )
        percent = int(np.floor(found.score * 100 + 0.5))
        rows.append([found.label, f"{percent}%", f"{width} \u00d7 {height} at {left}, {top}"])
    return rows


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """Write a picture wider than the window."""
    pixels = np.random.default_rng(1).integers(0, 256, (30, 60, 3), dtype=np.uint8)
    path = tmp_path_factory.mktemp("picture") / "street.png"
    Image.fromarray(pixels).resize((1200, 600), Image.Resampling.NEAREST).save(path)
    return path


def test_page_names_model_and_device_and_invites(fresh):
    assert fresh.text("#name") == "net"
    assert fresh.text("#facts").split("\n") == ["detector", "3 classes", "64 \u00d7 48", "cpu"]
    assert fresh.text("#purpose") == "Finds cat, dog, cow."
    assert fresh.one("#invitation").is_displayed()
    assert not fresh.one("#result").is_displayed()
    assert not fresh.one("#address").is_displayed()  # the server does not accept URLs
    assert not fresh.one("#live").is_displayed()  # it has no live sources
    fresh.all(".sample")[0].click()
    fresh.wait(lambda: fresh.text("#caption") and fresh.one("#result").is_displayed())
    assert fresh.text("#caption").startswith("parcel.jpg · 720 \u00d7 720 · network ")
    assert fresh.text("#caption").endswith(" ms · cpu")
    assert not fresh.one("#invitation").is_displayed()
    assert not fresh.one("#read-note").is_displayed()  # it reads no codes


def test_a_chosen_picture_is_shown_with_its_boxes(page, detector, picture):
    page.choose(picture)
    page.wait_for("street.png")
    expected = list(detector(str(picture)))
    assert page.rows() == found_in(expected)
    assert page.text("#count") == f"{len(expected)} objects"
    assert page.text("#status") == ""

    shown, overlay = page.one("#picture"), page.one("#boxes")
    assert overlay.rect == pytest.approx(shown.rect, abs=0.5)
    assert shown.rect["width"] < 1200  # the picture is scaled, so the boxes must be, too
    scale = shown.rect["width"] / 1200
    shapes = page.all("#boxes .box")[::-1]
    assert len(shapes) == len(expected) > 3
    labels = page.browser.execute_script(
        "return [...document.querySelectorAll('#boxes text')].map((text) => text.textContent);"
    )
    assert labels[::-1] == [f"{row[0]} {row[1]}" for row in page.rows()]
    drawn = page.browser.execute_script(
        "return arguments[0].map((shape) => {"
        "  const b = shape.getBBox(), m = shape.getScreenCTM();"
        "  const place = [b.x * m.a, b.y * m.d, b.width * m.a, b.height * m.d];"
        "  return [place, shape.getAttribute('stroke')];"
        "});",
        shapes,
    )
    for (place, colour), found in zip(drawn, expected, strict=True):
        box = (*found.box[:2], found.box.width, found.box.height)
        np.testing.assert_allclose(place, np.array(box) * scale, atol=1)
        assert colour == "rgb({}, {}, {})".format(*colour_of(found.class_id))


def test_dropped_pictures_are_kept_in_a_strip(page, detector, pictures):
    page.drop("dropped.png", pictures[1])
    page.wait_for("dropped.png")
    assert page.rows() == found_in(detector(pictures[1]))
    assert not page.one("#strip").is_displayed()
    page.drop("another.png", pictures[2])
    page.wait_for("another.png")
    assert page.rows() == found_in(detector(pictures[2]))
    first, second = page.all(".thumb")
    assert second.get_attribute("aria-current") == "true"
    first.click()
    page.wait_for("dropped.png")
    assert page.rows() == found_in(detector(pictures[1]))
    page.one("#clear").click()
    assert not page.one("#result").is_displayed()
    assert page.one("#invitation").is_displayed()
    assert not page.all(".thumb")


def test_the_strip_scrolls_to_the_picture_shown(page, pictures):
    seen = "const one = (id) => document.querySelector(id).getBoundingClientRect();"
    seen += "const thumb = one('[aria-current=true]'), strip = one('#thumbs');"
    seen += "return thumb.left >= strip.left && thumb.right <= strip.right + 1;"
    with page.resized(390, 844):
        for number in range(8):
            page.drop(f"{number}.png", pictures[0])
            page.wait_for(f"{number}.png")
        assert page.browser.execute_script(seen)


def test_a_picture_that_got_no_response_is_tried_again(page, pictures):
    page.browser.execute_script("window.ask = fetch; fetch = () => Promise.reject(new Error());")
    page.drop("a.png", pictures[0])
    page.wait(lambda: "The server does not respond" in page.text("#status"))
    page.drop("b.png", pictures[1])
    page.wait(lambda: page.texts(".thumb span") == ["!", "!"])
    page.browser.execute_script("fetch = window.ask;")
    page.all(".thumb")[0].click()
    page.wait_for("a.png")
    assert page.text("#status") == ""
    assert [each == "!" for each in page.texts(".thumb span")] == [False, True]


def test_clear_ends_what_is_on_the_way(browser, model, tmp_path, pictures, monkeypatch):
    names = [tmp_path / f"{number}.png" for number in range(12)]
    for name in names:
        name.write_bytes(pictures[0])
    may_run = threading.Event()
    may_run.set()
    with load(model) as detector:
        run = detector.run
        monkeypatch.setattr(detector, "run", lambda *given: may_run.wait(60) and run(*given))
        with serving(detector) as server:
            page = Page(browser, server)
            may_run.clear()
            page.choose("\n".join(map(str, names)))
            page.wait(lambda: server.service.accepted_pictures == 4)
            page.one("#clear").click()
            failed = []  # the types of requests
            page.wait(
                lambda: (
                    failed.extend(each["type"] for each in page.events("loadingFailed"))
                    or failed.count("Fetch") == 4
                )
            )
            may_run.set()
            page.wait(server.holds_nothing)
            page.choose(names[0])
            page.wait_for("0.png")
            assert not page.one("#strip").is_displayed()
            counted = server.get("/metrics").content.decode()
            assert sum(map(int, re.findall(r'path="/detect",status="\d+"} (\d+)', counted))) == 5


def test_a_file_that_is_gone_is_not_a_lost_server(page, tmp_path, pictures):
    path = tmp_path / "a.png"
    path.write_bytes(pictures[0])
    page.choose(path)
    page.wait_for("a.png")
    path.unlink()
    page.one("#save-picture").click()
    page.wait(
        lambda: page.text("#status").startswith("a.png: The browser cannot read the file any more")
    )
    other = tmp_path / "b.png"
    other.write_bytes(pictures[0])
    page.browser.execute_script("window.ask = fetch; fetch = () => Promise.reject(new Error());")
    page.choose(other)
    page.wait(lambda: "The server does not respond" in page.text("#status"))


def test_a_file_that_goes_before_its_turn_is_not_a_lost_server(page, tmp_path, pictures):
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for path in paths:
        path.write_bytes(pictures[0])
    paths[4].write_bytes(b"")
    page.browser.execute_script(HOLD)
    page.choose("\n".join(map(str, paths)))
    page.wait(lambda: page.text("#status") == "Processing 6 pictures…")
    paths[5].unlink()
    page.browser.execute_script("window.release();")
    page.wait(lambda: "2 of 6 files are not shown: 4.png, 5.png" in page.text("#status"))
    page.all(".thumb")[5].click()
    page.wait(lambda: page.text("#status").startswith("5.png: The browser cannot read the file"))
    page.all(".thumb")[4].click()
    page.wait(lambda: page.text("#status").startswith("4.png: picture: expected JPEG"))
    assert "got an empty file" in page.text("#status")


def test_boxes_are_not_drawn_onto_a_picture_that_is_gone(page, detector, tmp_path, pictures):
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, content in zip(paths, pictures, strict=False):
        path.write_bytes(content)
    page.choose("\n".join(map(str, paths)))
    counts = [str(len(detector(each))) for each in pictures[:3]]
    page.wait(lambda: page.texts(".thumb span") == counts)
    paths[1].unlink()
    for _ in range(2):
        page.all(".thumb")[1].click()
        page.wait(
            lambda: page.text("#status").startswith("1.png: The browser cannot read the file")
        )
        page.wait(lambda: not page.one("#figure").is_displayed())
        assert page.rows() == found_in(detector(pictures[1]))
        page.all(".thumb")[2].click()
        page.wait_for("2.png")
        assert page.one("#figure").is_displayed()
        assert page.text("#status") == ""


def test_pasted_picture_is_detected(page, detector, pictures):
    page.browser.execute_script(PASTE, "pasted.png", list(pictures[3]))
    page.wait_for("pasted.png")
    assert page.rows() == found_in(detector(pictures[3]))


def test_several_chosen_pictures_are_processed(page, detector, tmp_path, pictures):
    names = []
    for number, content in enumerate(pictures[:3]):
        names.append(tmp_path / f"{number}.png")
        names[-1].write_bytes(content)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    names.insert(1, tmp_path / "broken.png")
    (tmp_path / "bad.png").write_bytes(b"no picture either")
    page.choose("\n".join(map(str, [tmp_path / "bad.png", names[1], names[0]])))
    page.wait(lambda: page.texts(".thumb span")[:2] == ["!", "!"])
    page.wait(lambda: page.one("#panel").is_displayed() and page.one("#figure").is_displayed())
    current = [each.get_attribute("aria-current") for each in page.all(".thumb")]
    assert current == ["false", "false", "true"]  # the first one that could be read
    page.one("#clear").click()
    page.choose("\n".join(map(str, names)))
    counts = [len(detector(each)) for each in pictures[:3]]
    expected = [str(counts[0]), "!", *map(str, counts[1:])]
    page.wait(lambda: page.texts(".thumb span") == expected)
    page.all(".thumb")[1].click()
    page.wait(lambda: "broken.png: picture: expected JPEG" in page.text("#status"))
    assert not page.one("#panel").is_displayed()
    page.all(".thumb")[2].click()  # the other pictures can still be reached
    page.wait(lambda: page.one("#panel").is_displayed() and page.one("#figure").is_displayed())


def test_files_that_are_not_shown_are_named(page, tmp_path, pictures):
    """A broken file never leaves an earlier picture on display as if it were the new one."""
    good, other, broken, video = (
        tmp_path / f"{name}" for name in ("a.png", "b.png", "c.png", "d.mp4")
    )
    good.write_bytes(pictures[0]), other.write_bytes(pictures[1])
    broken.write_bytes(b"no picture"), video.write_bytes(b"no video")
    page.choose(good)
    page.wait_for("a.png")
    page.choose(broken)
    page.wait(lambda: page.text("#status").startswith("c.png: picture: expected JPEG"))
    assert page.text("#caption") == "c.png"
    assert not page.one("#panel").is_displayed()
    page.choose(f"{broken}\n{other}")
    page.wait_for("b.png")
    page.wait(lambda: page.text("#status").startswith("c.png: picture: expected JPEG"))
    page.choose(f"{video}\n{broken}\n{good}")
    page.wait_for("a.png")
    page.wait(lambda: "2 of 3 files are not shown: d.mp4, c.png" in page.text("#status"))
    page.all(".thumb")[4].click()
    page.wait(lambda: page.text("#status").startswith("d.mp4: a video is played alone"))
    page.choose(f"{broken}\n{video}")
    page.wait(lambda: "2 of 2 files are not shown: c.png, d.mp4" in page.text("#status"))


def test_threshold_and_classes_act_without_a_request(page, model, pictures):
    page.drop("a.png", pictures[0])
    page.wait_for("a.png")
    page.addresses()
    before = page.rows()
    for _ in range(5):
        page.one("#threshold").send_keys(Keys.ARROW_LEFT)
    assert page.text("#score") == "0.35"
    with load(model, threshold=0.35) as detector:
        expected = list(detector(pictures[0]))
    assert page.rows() == found_in(expected)
    assert page.rows()[: len(before)] == before != page.rows()
    label = expected[0].label
    chip = next(each for each in page.all(".chip") if each.text.startswith(label))
    assert chip.text == f"{label} {sum(each.label == label for each in expected)}"
    chip.click()
    assert page.rows() == found_in(each for each in expected if each.label != label)
    active = page.browser.switch_to.active_element
    assert active.get_attribute("aria-pressed") == "false"  # the focus stays
    active.click()
    assert page.rows() == found_in(expected)
    assert not page.addresses()


def test_page_helps_when_nothing_is_shown(page, pictures):
    page.drop("a.png", pictures[0])
    page.wait_for("a.png")
    before = page.rows()
    for chip in range(len(page.all(".chip"))):
        page.all(".chip")[chip].click()
    assert page.text("#nothing-title") == "Nothing to show"
    page.one("#nothing-action").click()
    assert page.rows() == before
    page.one("#threshold").send_keys(Keys.END)
    assert page.text("#nothing-title") == "Nothing above 0.95"
    assert page.text("#nothing-text").startswith(f"The best guess is {before[0][0]} with")
    page.one("#nothing-action").click()
    assert page.rows() == before[: len(page.rows())] != []
    badge = page.browser.execute_script("return document.querySelector('.thumb span').textContent;")
    assert badge == str(len(page.rows()))


def test_boxes_can_be_clicked(page, pictures):
    page.drop("a.png", pictures[0])
    page.wait_for("a.png")
    best = page.one("#boxes .found:last-child .box")
    webdriver.ActionChains(page.browser).move_to_element(best).click().perform()
    pressed = page.one('.row[aria-pressed="true"]')
    assert pressed.text.split("\n")[0] == page.rows()[0][0]
    assert len(page.all("#boxes .found.chosen")) == 1
    webdriver.ActionChains(page.browser).send_keys(Keys.ESCAPE).perform()
    assert not page.all("#boxes .chosen")
    assert not page.all('.row[aria-pressed="true"]')


LABELS = """
const [count, done] = arguments;
const { draw } = await import("./overlay.js");
document.getElementById("result").hidden = document.getElementById("figure").hidden = false;
const overlay = document.getElementById("boxes");
overlay.parentElement.style.cssText = "width: 600px; height: 400px";
const box = { left: 100, top: 100, right: 500, bottom: 300 };
const found = Array.from({ length: count }, () => ({ box, class_id: 0, label: "cat", score: 0.9 }));
const groups = draw(overlay, found, { width: 600, height: 400 }, () => {});
const places = () => [...overlay.querySelectorAll(".tag")]
  .filter((tag) => getComputedStyle(tag).display !== "none")
  .map((tag) => tag.getBoundingClientRect());
const before = places();
const worst = groups.at(-1);
worst.dispatchEvent(new PointerEvent("pointerenter"));
const hovered = places().at(-1), all = places().length;
worst.dispatchEvent(new PointerEvent("pointerleave"));
const corners = ({ left, top }) => `${left} ${top}`;
done([new Set(before.map(corners)).size, before.length, all, hovered.width, places().length]);
"""


def test_labels_are_hidden_only_where_they_collide(fresh):
    for count, shown in ((7, 7), (20, 8)):
        corners, before, hovered, width, after = fresh.browser.execute_async_script(LABELS, count)
        assert (corners, before, after) == (shown, shown, shown), count
        # The label under the pointer is always there.
        assert hovered == min(shown + 1, count), count
        assert width > 0, count


def test_the_best_guess_is_not_said_to_be_the_threshold(page):
    answer = {"detections": [{"class_id": 0, "label": "cat", "score": 0.9486, "box": BOX}]}
    answer |= {"path": "a.png", "width": 50, "height": 40, "timing_ms": {}}
    reply = "fetch = async () => new Response(JSON.stringify(arguments[0]))"
    page.browser.execute_script(f"window.{reply}", answer)
    buffer = io.BytesIO()
    Image.new("RGB", (50, 40)).save(buffer, "PNG")
    page.drop("a.png", buffer.getvalue())
    page.wait_for("a.png")
    page.one("#threshold").send_keys(Keys.END)
    assert page.text("#nothing-title") == "Nothing above 0.95"
    assert page.text("#nothing-text") == "The best guess is cat with a score of 0.948."


def test_all_buttons_are_in_sight(page, pictures):
    with page.resized(1280, 860):
        for name in ("a.png", "b.png"):
            page.drop(name, pictures[0])
            page.wait_for(name)
        scrolls = "const rows = arguments[0]; return rows.scrollHeight > rows.clientHeight;"
        assert page.browser.execute_script(scrolls, page.one("#rows"))
        panel, button = page.one("#panel").rect, page.one("#save-all").rect
        assert page.one("#rows").rect["height"] < 0.9 * panel["height"]
        assert button["y"] + button["height"] <= panel["y"] + panel["height"]


def test_downloads_hold_what_is_shown(fresh, detector, pictures):
    fresh.drop("a.jpg.png", pictures[0])
    fresh.wait_for("a.jpg.png")
    fresh.browser.execute_script(SAVE)
    fresh.one("#save-json").click()
    name, content = fresh.saved()
    assert name == "a.jpg.json"
    assert [each["label"] for each in json.loads(content)["detections"]] == [
        each.label for each in detector(pictures[0])
    ]
    fresh.one("#save-picture").click()
    fresh.drop("b.png", pictures[1])  # is on display when the answer comes
    fresh.wait_for("b.png")
    name, content = fresh.saved()
    assert name == "a.jpg-detected.png"
    result = detector(pictures[0])
    drawn = Image.open(io.BytesIO(content))
    assert np.array_equal(np.asarray(drawn), np.asarray(result.plot()))
    fresh.one("#save-all").click()
    name, content = fresh.saved()
    assert name == "net.json"
    assert [each["path"] for each in json.loads(content)["images"]] == ["a.jpg.png", "b.png"]


def test_camera_is_followed_until_it_is_stopped(page):
    page.one("#camera").click()
    page.wait_for("camera")
    assert page.one("#video").is_displayed()
    first = page.text("#caption")
    page.wait(lambda: page.text("#caption") != first)  # the next frame
    place = page.one("#stop").location
    page.one("#threshold").send_keys(Keys.END)  # nothing is found
    page.wait(lambda: not page.rows())
    assert page.one("#stop").location == place  # whatever is found, a click hits it
    page.one("#stop").click()
    page.wait(lambda: not page.one("#video").is_displayed())
    assert page.one("#picture").is_displayed()  # the last frame
    assert page.browser.execute_script("return document.getElementById('video').srcObject") is None


def test_a_camera_that_is_asked_for_twice_is_opened_once(fresh):
    fresh.browser.execute_script(
        "const { mediaDevices } = navigator, ask = mediaDevices.getUserMedia.bind(mediaDevices);"
        "window.opened = [];"
        "mediaDevices.getUserMedia = (...given) =>"
        "  ask(...given).then((stream) => (window.opened.push(stream), stream));"
        "const { camera } = document.all;"
        "camera.click(), camera.click();"
    )
    states = "return window.opened.map((each) => each.getTracks()[0].readyState);"
    fresh.wait_for("camera")
    fresh.wait(lambda: fresh.browser.execute_script(states) == ["ended", "live"])
    fresh.one("#stop").click()
    fresh.wait(lambda: fresh.browser.execute_script(states) == ["ended", "ended"])


def test_a_camera_that_is_stopped_before_its_first_result_adds_no_picture(page, pictures):
    page.drop("a.png", pictures[0])
    page.wait_for("a.png")
    page.browser.execute_script(HOLD)
    page.one("#camera").click()
    page.wait(lambda: page.one("#stop").is_displayed())
    page.one("#stop").click()
    page.wait_for("a.png")
    assert page.one("#picture").is_displayed()
    assert not page.one("#video").is_displayed()
    assert not page.one("#strip").is_displayed()  # of several pictures


@pytest.fixture
def street(tmp_path):
    """Write a video of three seconds that browsers play."""
    av = pytest.importorskip("av", reason=needs.advice("av"))
    path = tmp_path / "street.webm"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libvpx", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(30):
            pixels = np.full((48, 64, 3), number * 8, np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels)):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def test_a_frame_of_a_video_is_kept_with_its_time(fresh, street):
    fresh.choose(street)
    fresh.wait_for("street.webm")
    fresh.browser.execute_script(SAVE)
    fresh.one("#stop").click()
    fresh.wait(lambda: fresh.one("#picture").is_displayed())
    fresh.one("#save-json").click()
    kept = json.loads(fresh.saved()[1])
    assert kept["path"] == "street.webm"
    assert 0 <= kept["seconds"] <= 3


def test_video_is_followed(page, street, pictures):
    page.choose(street)
    page.wait_for("street.webm")
    assert " frames/s" in page.text("#caption")
    first = page.text("#caption")
    page.wait(lambda: page.text("#caption") != first)
    page.drop("a.png", pictures[0])  # ends the video
    page.wait_for("a.png")
    assert not page.one("#video").is_displayed()


def test_a_video_that_the_browser_cannot_play_is_for_the_engine(page, tmp_path):
    path = tmp_path / "street.mp4"
    path.write_bytes(b"no video")
    page.choose(path)
    page.wait(lambda: "Run: engine detect FILE, or engine serve --source" in page.text("#status"))


def test_full_server_is_asked_again(page, server, pictures):
    server.service.accepted_pictures += 64
    page.drop("a.png", pictures[0])
    page.wait(lambda: page.text("#status").startswith("The server is busy. Trying again in "))
    server.service.accepted_pictures -= 64
    page.wait_for("a.png")
    assert page.text("#status") == ""


def test_pictures_at_urls_are_shown_until_clear_forgets_one(
    browser, detector, pictures, monkeypatch
):
    monkeypatch.setattr(remote_pictures, "is_public", lambda address: address == "127.0.0.1")
    access = Access(allow_urls=True)
    with (
        website(dict.fromkeys(("/a.png", "/100%.png"), pictures[0])) as (site, _),
        serving(detector, access=access) as server,
    ):
        page = Page(browser, server)
        page.one("#url").send_keys(f"{site}/a.png")
        page.one("#address button").click()
        page.wait_for("a.png")
        assert page.rows() == found_in(detector(pictures[0]))
        page.one("#url").clear()
        page.one("#url").send_keys(f"{site}/100%.png")
        page.one("#address button").click()
        page.wait_for("100%.png")
        page.one("#url").clear()
        page.one("#url").send_keys("http://10.0.0.1/a.png")
        page.one("#address button").click()
        page.wait(lambda: "expected a public address" in page.text("#status"))
        browser.execute_script(HANG)
        page.one("#url").clear()
        page.one("#url").send_keys("http://example.org/c.png")
        page.one("#address button").click()
        page.wait(lambda: page.text("#status") == "Fetching…")
        page.one("#clear").click()
        page.wait(lambda: browser.execute_script("return window.aborted;"))
        assert page.text("#status") == ""


def test_page_asks_for_the_token(browser, detector, pictures):
    with serving(detector, access=Access(token="a-secret")) as server:
        page = Page(browser, server, is_open=False)
        for word in ("wrong", "fälsch", "a-secret"):
            page.wait(lambda: page.one("#ask").is_displayed())
            for _ in range(2):  # a browser lets a page prevent the first Escape only
                page.one("#token").send_keys(Keys.ESCAPE)
                page.wait(lambda: page.one("#ask").is_displayed())
            assert page.one("#refused").is_displayed() == (word != "wrong")
            page.one("#token").send_keys(word + Keys.ENTER)
            page.wait(lambda word=word: page.text("#facts") or word != "a-secret")
        page.drop("a.png", pictures[0])
        page.wait_for("a.png")
        assert page.rows() == found_in(detector(pictures[0]))
        page.browser.execute_script("sessionStorage.clear()")


def test_invalid_picture_is_reported(page, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    page.choose(path)
    page.wait(lambda: "picture: expected JPEG" in page.text("#status"))
    assert not page.one("#result").is_displayed()
    assert "error" in page.one("#status").get_attribute("class")


def test_file_names_are_escaped(page, pictures):
    name = "<img src=x onerror=alert(1)>.png"
    page.drop(name, pictures[0])
    page.wait_for(name)
    assert not page.complaints()


@pytest.mark.parametrize("orient", [True, False])
def test_a_picture_lies_as_its_boxes_do(browser, model, tmp_path, orient):
    """Browsers turn some formats by their EXIF, the server turns all of them or none."""
    with Image.open(PARCEL) as parcel:
        picture = parcel.resize((240, 240))
    with load(model, orient=orient) as detector, serving(detector) as server:
        page = Page(browser, server)
        browser.execute_script(SCORE, 0.95)  # boxes take the browser long, and are not looked at
        for orientation, kind in product((3, 6), ("jpg", "png", "webp", "webp.jpg")):
            path = tmp_path / f"{orientation}.{kind}"
            exif = Image.Exif()
            exif[0x0112] = orientation
            picture.save(path, "WEBP" if "webp" in kind else None, exif=exif)
            page.addresses()
            page.choose(path)
            page.wait_for(path.name)
            shown = Image.open(io.BytesIO(base64.b64decode(browser.execute_script(PIXELS))))
            expected = read(path, orient=orient).to_image()
            assert difference(expected, shown) < 3, path.name
            uploads = sum("/detect?" in each for each in page.addresses())
            assert uploads == (1 if orient and kind == "jpg" else 2), path.name


def test_a_turned_jpeg_whose_orientation_only_the_server_knows(page, detector, tmp_path, picture):
    path = tmp_path / "xmp.jpg"
    xmp = b'<rdf:Description tiff:Orientation="6" xmlns:tiff="http://ns.adobe.com/tiff/1.0/"/>'
    Image.open(picture).save(path, xmp=xmp)
    assert detector(str(path)).size == (600, 1200)
    page.choose(path)
    page.wait_for("xmp.jpg")
    rect = page.one("#picture").rect
    assert rect["height"] > 1.9 * rect["width"]
    assert page.one("#boxes").rect == pytest.approx(rect, abs=0.5)


def test_format_without_browser_support_is_shown_by_the_server(page, detector, tmp_path, picture):
    path = tmp_path / "scan.ppm"
    Image.open(picture).save(path)
    page.choose(path)
    page.wait_for("scan.ppm")
    assert page.rows() == found_in(detector(str(path)))
    size = "return [document.getElementById('picture').naturalWidth, innerWidth];"
    assert page.browser.execute_script(size)[0] == 1200


def test_page_loads_nothing_external_and_logs_no_errors(fresh, pictures):
    fresh.drop("a.png", pictures[0])
    fresh.wait_for("a.png")
    assert not fresh.complaints()
    asked = {each for each in fresh.addresses() if not each.startswith(("blob:", "data:"))}
    assert {each for each in asked if not each.startswith(fresh.address)} == set()
    assert len(asked) > 3


def test_page_is_accessible_by_keyboard_and_screen_reader(fresh, pictures):
    fresh.drop("a.png", pictures[0])
    fresh.wait_for("a.png")
    assert fresh.one("html").get_attribute("lang") == "en"
    assert fresh.one("#status").get_attribute("role") == "status"
    assert fresh.one("#picture").get_attribute("alt").startswith("A picture with ")
    assert fresh.one("#file").accessible_name == "Choose pictures"
    assert fresh.one("#threshold").accessible_name == "Minimum score"
    order = []
    for _ in range(12):
        webdriver.ActionChains(fresh.browser).send_keys(Keys.TAB).perform()
        active = fresh.browser.switch_to.active_element
        order.append(active.get_attribute("id") or active.get_attribute("class") or active.tag_name)
    kept = [each for each in dict.fromkeys(order) if each not in ("a", "classes", "rows")]
    assert kept[:5] == ["file", "camera", "threshold", "chip", "row"]
    fresh.browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert len(fresh.all("#boxes .found.chosen")) == 1


SIZES = [(1280, 860), (820, 1100), (390, 844)]
SCROLL_WIDTH = "return document.documentElement.scrollWidth;"


def test_page_fits_its_width(page, pictures):
    for has_result, (width, height) in product((False, True), SIZES):
        with page.resized(width, height):
            if has_result:
                page.drop(f"{width}.png", pictures[0])
                page.wait_for(f"{width}.png")
            assert page.browser.execute_script(SCROLL_WIDTH) <= width, (width, has_result)


def codes_of(*texts):
    """Return a PNG with QR codes in a row."""
    from tests.codes import made  # skips the test if zxing-cpp is missing

    codes = [
        (made.symbol(text, "QRCode"), (180 + 330 * at, 180), 0) for at, text in enumerate(texts)
    ]
    file = io.BytesIO()
    Image.fromarray(made.page(*codes, size=(330 * len(texts), 360))).save(file, "PNG")
    return file.getvalue()


def test_what_codes_say_is_shown_and_copied(browser, reading_page):
    made_up = "<img src=x onerror=alert(1)>\x1dend"
    texts = ["https://example.org/a?b=c", made_up, "javascript:alert(1)"]
    page = reading_page
    page.drop("codes.png", codes_of(*texts))
    page.wait_for("codes.png")
    assert {each.text for each in page.all(".text")} == {
        *texts[::2],
        made_up.replace("\x1d", r"\x1d"),
    }
    assert [each.get_attribute("href") for each in page.all("a.text")] == texts[:1]
    assert "noopener" in page.one("a.text").get_attribute("rel").split()
    assert all(row[-1].startswith("QR Code, ") for row in page.rows())
    page.one("#threshold").send_keys(Keys.END)
    assert len(page.all(".text")) == 3  # what was read does not depend on a score
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", allowed)
    (row,) = (each for each in page.all(".said") if each.text.startswith("<img"))
    row.find_element(By.CSS_SELECTOR, "button").click()
    page.wait(lambda: row.text.endswith("Copied"))
    read = "navigator.clipboard.readText().then(arguments[0])"
    assert browser.execute_async_script(read) == made_up
    page.all(".row")[1].click()
    assert [each.get_attribute("aria-pressed") for each in page.all(".row")][:2] == [
        "false",
        "true",
    ]
    if "ENGINE_AXE" in os.environ:
        assert page.violations() == []
    assert not page.complaints()


def test_characters_that_nobody_sees_are_escaped(browser, reading_server):
    address, other = "https://example.org/\u202egpj.exe", "\ttab\x1d\u2067\nline"
    page = Page(browser, reading_server)
    page.drop("codes.png", codes_of(address, other))
    page.wait_for("codes.png")
    assert {each.text for each in page.all(".text")} == {
        r"https://example.org/\u202egpj.exe",
        r"\ttab\x1d\u2067" "\nline",
    }
    assert page.one("a.text").get_attribute("href") == "https://example.org/%E2%80%AEgpj.exe"
    browser.execute_script(SAVE)
    page.one("#save-json").click()
    found = json.loads(page.saved()[1])["detections"]
    assert {each["text"] for each in found} == {address, other}


def difference(one, other):
    """Return the mean difference of pixels: 1.2 of the parcel after JPEG, 7 with drawn boxes."""
    one, other = (np.asarray(each.convert("RGB"), int) for each in (one, other))
    return float(np.abs(one - other).mean())


@pytest.fixture(scope="module")
def reading_server():
    """A server of the model in the box, all of whose requests read codes."""
    with engine.load(device="cpu", threads=1, read=True) as detector, serving(detector) as server:
        yield server


@pytest.fixture
def reading_page(browser, reading_server, request):
    with reused(browser, reading_server, request.session) as page:
        yield page


def test_the_server_draws_no_code_into_the_picture_below_the_boxes(reading_page, tmp_path):
    page = reading_page
    for name in ("scan.ppm", "scan.tif"):
        path = tmp_path / name
        Image.open(PARCEL).save(path)
        page.choose(path)
        page.wait_for(name)
        assert len(page.rows()) > 3, name
        shown = base64.b64decode(page.browser.execute_script(PIXELS))
        assert difference(Image.open(path), Image.open(io.BytesIO(shown))) < 2, name


def test_a_picture_is_saved_without_codes_if_all_classes_are_off(browser, reading_server):
    page = Page(browser, reading_server)
    page.choose(PARCEL)
    page.wait_for("parcel.jpg")
    chips = len(page.all(".chip"))
    assert chips == len(reading_server.service.detector.labels)
    assert page.text("#read-note") == "Codes that were read are shown at any score."
    for number in range(chips):
        page.all(".chip")[number].click()
    assert page.text("#nothing-title") == "Nothing to show"
    browser.execute_script(SAVE)
    page.one("#save-picture").click()
    name, content = page.saved()
    assert name == "parcel-detected.jpg"
    assert difference(Image.open(PARCEL), Image.open(io.BytesIO(content))) < 2


@pytest.mark.skipif("ENGINE_AXE" not in os.environ, reason="ENGINE_AXE names no axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(fresh, pictures, scheme):
    chosen = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    fresh.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", chosen)
    assert fresh.violations() == []
    fresh.drop("a.png", pictures[0])
    fresh.drop("b.png", pictures[1])
    fresh.wait_for("b.png")
    assert fresh.violations() == []
    fresh.one("#threshold").send_keys(Keys.END)
    assert fresh.violations() == []
    fresh.browser.get(fresh.address + "docs")
    fresh.wait(lambda: fresh.all("details"))
    assert fresh.violations() == []


def test_api_page_shows_every_operation_and_fits_its_width(browser, server):
    page = Page(browser, server, "docs", is_open=False)
    page.wait(lambda: page.all("details"))
    described = server.get("/openapi.json").found["paths"]
    assert [each.text for each in page.all("summary h2")] == list(described)
    assert f"{page.address}detect" in page.all("details pre")[0].text
    assert not page.complaints()
    for width, height in SIZES:
        with page.resized(width, height):
            assert browser.execute_script(SCROLL_WIDTH) <= width, width


def test_a_classifier_lists_classes(browser, tiny_classifier, pictures):
    with load(tiny_classifier) as detector, serving(detector) as server:
        page = Page(browser, server)
        page.drop("a.png", pictures[0])
        page.wait_for("a.png")
        expected = [
            [each.label, f"{int(np.floor(each.score * 100 + 0.5))}%"]
            for each in detector(pictures[0])
        ]
        assert page.rows() == expected
        assert not page.one("#threshold-row").is_displayed()
        assert not page.all("#boxes .box")
        assert not page.complaints()


# ------------------------------------------------------------ live sources


def test_live_sources_are_moving_pictures(browser, detector, tmp_path):
    """The page shows them with the token, and the browser shows the plain MJPEG."""
    needs.package("av")
    clip = write_video(tmp_path / "clip.mp4", count=20)
    missing = "tcp://127.0.0.1:1"
    with serving(detector, live=LiveOptions([str(clip), missing])) as server:
        page = Page(browser, server)
        page.wait(lambda: page.one("#live").is_displayed() and len(page.all(".source")) == 2)
        image, other = page.all(".source img")
        page.wait(lambda: image.get_property("naturalWidth") == 64)
        first = image.get_property("src")
        page.wait(lambda: image.get_property("src") != first)
        assert not other.get_property("naturalWidth")
        page.wait(lambda: "cannot be read" in page.all(".source p")[1].text)
        page.all(".source .button")[0].click()
        page.wait(lambda: server.get("/sources").found["sources"][0]["clients"] == 0)
        browser.execute_script(
            "const plain = new Image();"
            "plain.id = 'plain'; plain.src = 'sources/0/mjpeg'; document.body.append(plain);"
        )
        page.wait(lambda: page.one("#plain").get_property("naturalWidth") == 64)
        browser.execute_script("document.getElementById('plain').src = '';")
        page.wait(lambda: server.get("/sources").found["sources"][0]["clients"] == 0)
