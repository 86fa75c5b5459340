"""The report of the kit: report.json, and report.html that shows it."""
import html
import json
import statistics
import tomllib

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #66708a; --line: #d8dde8; --paper: #fff; --ours: #3b6fd4; --theirs: #b9772a; --bad: #c0392b; --good: #2e8b57 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f0; --soft: #9aa4bb; --line: #39415a; --paper: #161b27; --ours: #7aa2ff; --theirs: #e0a458; --bad: #ff7b6b; --good: #6fce9a } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem } th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
td:has(.bar) { width: 22% } th { color: var(--soft); font-weight: 600 } td.number { text-align: right; font-variant-numeric: tabular-nums }
.bar { height: .8rem; border-radius: 2px; background: var(--ours) } .bar.PyTorch { background: var(--theirs) }
.right { color: var(--good) } .wrong, .failed { color: var(--bad); font-weight: 600 } .refused { color: var(--soft) }
.numbers { display: flex; gap: 2.5rem; flex-wrap: wrap } .numbers b { display: block; font-size: 1.8rem; font-weight: 600 } pre { white-space: pre-wrap; font-size: 12px }
"""


def text(value):
    return html.escape(str(value))


def table(heads, rows):
    cells = lambda row: "".join(f'<td class="number">{cell[1]}</td>' if isinstance(cell, tuple) else f"<td>{cell}</td>" for cell in row)
    return "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>" + "".join(f"<tr>{cells(row)}</tr>" for row in rows) + "</table>"


def number(value, form="{:.1f}"):
    return ("number", form.format(value) if value is not None else "–")


def tokens_of_step(config):
    given = tomllib.loads(config.read_text())
    return given["step"]["batch"] * given["model"]["seq"]


def prediction_errors(rows):
    return [abs(row["predicted"] / row["seconds"] - 1) for row in rows if row.get("predicted") and "seconds" in row]


def summary(report, tokens):
    """The large numbers on top: what, and a value."""
    out = []
    if "correctness" in report:
        right = sum(row["verdict"] == "right" for row in report["correctness"])
        tried = sum(row["verdict"] != "refused" for row in report["correctness"])
        out.append((f"{right} of {tried}", "strategies have PyTorch's losses"))
    times = {system: min((row["seconds"] for row in report.get("speed", []) if row["system"] == system and "seconds" in row), default=None)
             for system in ("Piper", "PyTorch")}
    if times["Piper"]:
        out.append((f"{tokens / times['Piper'] / report['processes']:,.0f}", "tokens per device and second, the fastest strategy"))
    if all(times.values()):
        out.append((f"{times['Piper'] / times['PyTorch']:.2f}", "of the step time of PyTorch's fastest"))
    if errors := prediction_errors(report.get("speed", [])):
        out.append((f"{statistics.mean(errors) * 100:.0f} %", "mean error of predicted step times"))
    return out


def speed_table(report, tokens):
    longest = max((row["seconds"] for row in report["speed"] if "seconds" in row), default=1)
    rows = []
    for row in sorted(report["speed"], key=lambda row: row.get("seconds", float("inf"))):
        if "seconds" not in row:
            rows.append([row["system"], text(row["name"]), '<span class="failed">failed</span>', ("", ""), ("", ""), ("", ""), ("", ""), text(row.get("problem", ""))])
            continue
        low, high = row["spread"]
        error = f"{(row['predicted'] / row['seconds'] - 1) * 100:+.0f} %" if row.get("predicted") else "–"
        bar = f'<div class="bar {row["system"]}" style="width:{row["seconds"] / longest * 100:.1f}%"></div>'
        rows.append([row["system"], text(row["name"]), number(row["seconds"] * 1e3), ("", f"{low * 1e3:.1f} to {high * 1e3:.1f}"),
                     number(tokens / row["seconds"] / report["processes"], "{:,.0f}"), ("", error), number(row["peak_bytes"] / 2**20 if row.get("peak_bytes") else None, "{:,.0f}"), bar])
    return table(["system", "strategy", "ms/step", "rounds", "tokens per device and second", "prediction", "MiB at the peak", ""], rows)


def write_report(report, config, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    tokens = tokens_of_step(config)
    parts = [f"<!doctype html><meta charset=utf-8><title>Piper on {report['processes']} devices</title><style>{STYLE}</style>",
             f"<h1>Piper on {report['processes']} {'GPUs' if report['on'] == 'cuda' else 'processes'}</h1>",
             f"<p>{report['date']}; " + text(", ".join(f"{key} {value}" for key, value in report["versions"].items() if value)) + "</p>",
             '<div class="numbers">' + "".join(f"<div><b>{value}</b>{what}</div>" for value, what in summary(report, tokens)) + "</div>"]
    if "correctness" in report:
        rows = [[row["size"], text(row["strategy"]), f'<span class="{row["verdict"]}">{row["verdict"]}</span>', number(row.get("difference"), "{:.1e}"),
                 f"<details><summary>schedule</summary><pre>{text(row['schedule'])}</pre></details>", f"<pre>{text(row.get('problem', ''))}</pre>"] for row in report["correctness"]]
        parts += ["<h2>Losses of the reference decoder</h2><p>The largest difference from PyTorch's published losses.</p>",
                  table(["size", "strategy", "", "difference", "", ""], rows)]
    if "speed" in report:
        parts += [f"<h2>Steps of the size {report['size']}, beside PyTorch</h2><p>{tokens:,} tokens a step, {report['slices']} slices. Prediction: step time "
                  "predicted from costs of one device, relative to the measured one.</p>", speed_table(report, tokens)]
    doctor = report["doctor"]
    parts += ["<h2>Machine</h2><pre>" + text(json.dumps(doctor.get("hosts", doctor), indent=1)) + "</pre>"]
    if doctor.get("links"):
        parts.append("<h2>Links</h2><pre>" + text(json.dumps(doctor["links"], indent=1)) + "</pre>")
    page = folder / "report.html"
    page.write_text("\n".join(parts) + "\n")
    return page
