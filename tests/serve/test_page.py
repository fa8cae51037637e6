"""The page at / in a real browser: dropping a picture shows its boxes."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from tests import needs

pytest.importorskip("selenium", reason=needs.advice("selenium"))

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.serve.running import load, serving

pytestmark = pytest.mark.slow

DROP = """
const [target, name, bytes] = arguments;
const files = new DataTransfer();
files.items.add(new File([new Uint8Array(bytes)], name, {type: "image/png"}));
for (const kind of ["dragenter", "dragover", "drop"])
  target.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: files}));
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
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture
def page(browser, server):
    return Page(browser, server)


class Page:
    def __init__(self, browser, server):
        browser.get_log("performance"), browser.get_log("browser")
        self.browser = browser
        self.address = f"http://{server.host}:{server.port}/"
        browser.get(self.address)
        self.wait(lambda: self.text("#model").strip())

    def wait(self, is_so):
        return WebDriverWait(self.browser, 20).until(lambda _: is_so())

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        (found,) = self.all(selector)
        return found

    def text(self, selector):
        return self.one(selector).text

    def rows(self):
        return self.browser.execute_script(
            "return [...document.querySelectorAll('#rows tr')]"
            ".map((row) => [...row.cells].map((cell) => cell.innerText));"
        )

    def choose(self, path):
        self.one("#file").send_keys(str(path))

    def drop(self, name, content):
        self.browser.execute_script(DROP, self.one("#drop"), name, list(content))

    def complaints(self):
        return [entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]

    def addresses(self):
        """Return the address of every network request."""
        messages = [json.loads(each["message"]) for each in self.browser.get_log("performance")]
        return {
            message["message"]["params"]["request"]["url"]
            for message in messages
            if message["message"]["method"] == "Network.requestWillBeSent"
        }


def written(detections):
    return [
        [
            found.label,
            f"{found.score:.3f}",
            ", ".join(
                str(int(np.floor(value + 0.5)))  # as JavaScript rounds
                for value in (*found.box[:2], found.box.width, found.box.height)
            ),
        ]
        for found in detections
    ]


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """Write a picture wider than the window."""
    pixels = np.random.default_rng(1).integers(0, 256, (30, 60, 3), dtype=np.uint8)
    path = tmp_path_factory.mktemp("picture") / "street.png"
    Image.fromarray(pixels).resize((1200, 600), Image.Resampling.NEAREST).save(path)
    return path


def test_a_chosen_picture_is_shown_with_its_boxes(page, detector, picture):
    page.choose(picture)
    page.wait(lambda: page.one("#result").is_displayed())
    expected = list(detector(str(picture)))
    assert page.rows() == written(expected)
    assert page.text("#caption") == f"{len(expected)} objects in street.png"
    assert page.text("#status") == ""

    shown, overlay = page.one("#picture"), page.one("#boxes")
    assert overlay.rect == pytest.approx(shown.rect, abs=0.5)
    assert shown.rect["width"] < 1200  # the picture is scaled, so the boxes must be, too
    scale = shown.rect["width"] / 1200
    shapes = page.all("#boxes rect")[::-1]
    assert len(shapes) == len(expected) > 3
    assert [each.text for each in page.all("#boxes text")[::-1]] == [
        each.label for each in expected
    ]
    for shape, found in zip(shapes, expected, strict=True):
        drawn = page.browser.execute_script(
            "const b = arguments[0].getBBox(), m = arguments[0].getScreenCTM();"
            "return [b.x * m.a, b.y * m.d, b.width * m.a, b.height * m.d];",
            shape,
        )
        box = (*found.box[:2], found.box.width, found.box.height)
        np.testing.assert_allclose(drawn, np.array(box) * scale, atol=1)


def test_dropped_picture_is_detected(page, detector, pictures):
    page.drop("dropped.png", pictures[1])
    page.wait(lambda: page.one("#result").is_displayed())
    assert page.text("#caption").endswith("in dropped.png")
    assert page.rows() == written(detector(pictures[1]))
    page.drop("another.png", pictures[2])
    page.wait(lambda: page.text("#caption").endswith("in another.png"))
    assert page.rows() == written(detector(pictures[2]))


def test_threshold_slider_works_with_keys(page, model, pictures):
    page.drop("a.png", pictures[0])
    page.wait(lambda: page.one("#result").is_displayed())
    before = len(page.rows())
    page.one("#threshold").send_keys(Keys.ARROW_RIGHT)
    page.wait(lambda: len(page.rows()) != before)
    assert page.text("#score") == "0.35"
    with load(model, threshold=0.35) as detector:
        assert page.rows() == written(detector(pictures[0]))


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
    page.wait(lambda: page.one("#result").is_displayed())
    assert page.text("#caption").endswith(name)
    assert not page.complaints()


def test_rotated_picture_has_its_boxes_in_place(page, detector, tmp_path, picture):
    path = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(picture).save(path, exif=exif)
    page.choose(path)
    page.wait(lambda: page.one("#result").is_displayed())
    assert detector(str(path)).size == (600, 1200)
    rect = page.one("#picture").rect
    assert rect["height"] > 1.9 * rect["width"]
    assert page.one("#boxes").rect == pytest.approx(rect, abs=0.5)


def test_format_without_browser_support_shows_the_list_only(page, detector, tmp_path, picture):
    path = tmp_path / "scan.ppm"
    Image.open(picture).save(path)
    page.choose(path)
    page.wait(lambda: page.one("#result").is_displayed())
    assert not page.one("#frame").is_displayed()
    assert page.rows() == written(detector(str(path)))


def test_page_loads_nothing_external_and_logs_no_errors(page, pictures):
    page.drop("a.png", pictures[0])
    page.wait(lambda: page.one("#result").is_displayed())
    assert not page.complaints()
    asked = {each for each in page.addresses() if not each.startswith(("blob:", "data:"))}
    assert {each for each in asked if not each.startswith(page.address)} == set()
    assert len(asked) > 3


def test_page_is_accessible_by_keyboard_and_screen_reader(page, pictures):
    page.drop("a.png", pictures[0])
    page.wait(lambda: page.one("#result").is_displayed())
    assert page.one("html").get_attribute("lang") == "en"
    assert page.one("#status").get_attribute("role") == "status"
    assert page.one("#picture").get_attribute("alt").startswith("A picture with ")
    assert page.one("#file").accessible_name == "Drop a picture here or choose or paste one"
    assert page.one("#threshold").accessible_name == "Minimum score"
    order = []
    for _ in range(3):
        webdriver.ActionChains(page.browser).send_keys(Keys.TAB).perform()
        active = page.browser.switch_to.active_element
        order.append(active.get_attribute("id") or active.tag_name)
    assert order == ["file", "threshold", "tr"]
    assert len(page.all("#boxes .chosen")) == 1  # the box of the focused row


def test_a_classifier_lists_classes(browser, tiny_classifier, pictures):
    with load(tiny_classifier) as detector, serving(detector) as server:
        page = Page(browser, server)
        page.drop("a.png", pictures[0])
        page.wait(lambda: page.one("#result").is_displayed())
        expected = [[each.label, f"{each.score:.3f}"] for each in detector(pictures[0])]
        assert page.rows() == expected
        assert not page.one("#threshold-row").is_displayed()
        assert not page.all("#boxes rect")
        assert not page.complaints()
