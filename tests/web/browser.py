"""Chromium without a window, driven by Selenium; both are named, so that nothing is downloaded."""
import os
import shutil
import sys
import time

SKIPPED = 77  # what ctest takes for a skip


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def has_selenium():
    try:
        import selenium  # noqa: F401
        return True
    except ImportError:
        return False


def missing():
    """Goes on in the project's own environment; why there is no browser, or nothing."""
    own = os.path.join(ROOT, ".venv", "bin", "python")
    if not has_selenium() and os.path.exists(own) and os.environ.get("PIPER_ENVIRONMENT") != own:
        os.environ["PIPER_ENVIRONMENT"] = own
        os.execv(own, [own, *sys.argv])
    absent = [program for program in ("chromium", "chromedriver") if not shutil.which(program)]
    absent += [] if has_selenium() else ["selenium"]
    return f"{', '.join(absent)} not installed; scripts/setup --tests installs them on Debian" if absent else ""


def require():
    """Leaves with a reason where there is no browser."""
    if reason := missing():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)


def open_browser(width=1500, height=1000):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


def errors(driver):
    """What stands on the console as an error since it was last asked."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def open_page(driver, path, seconds=300):
    """Milliseconds from the start of loading until everything was drawn. A page with an error, such as a module that does not load, never is."""
    driver.get(f"file://{path}")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ready = driver.execute_script("return document.body.dataset.ready")
        if ready:
            return int(ready)
        if failed := errors(driver):
            raise AssertionError("the page cannot be drawn: " + "; ".join(failed))
        time.sleep(0.02)
    raise AssertionError("the page was not ready in time: " + driver.execute_script("return document.body.innerText"))


if __name__ == "__main__":
    require()
