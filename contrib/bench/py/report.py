"""Writes results: a table for readers, figures for machines (tab-separated), and pictures by gnuplot if present."""

import os
import shutil
import subprocess

COLUMNS = (
    ("GB/s", "gbps", 21),
    ("p50 us", "p50_us", 27),
    ("p99 us", "p99_us", 27),
    ("post ns/run", "post_ns_per_run", 24),
    ("CPU s/GiB", "cpu_s_per_gib", 21),
)


def _short(value):
    """Three significant digits, never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.{2 if value >= 1 else 3}f}"


def cell(spread):
    if spread is None:
        return "-"
    return _short(spread[1]) if spread[0] == spread[2] else "/".join(_short(value) for value in spread)


def _head(width):
    return " " * 4 + "who".ljust(width) + "".join(title.rjust(room) for title, _, room in COLUMNS)


def table(results, title, ours):
    """One block for each path and list, with a line for each system and the ratio of KVCL's speed to its speed."""
    keys = results.keys()
    width = 2 + max((len(who) for _, _, who in keys), default=0)
    lines = [title, "=" * len(title), "", "min/median/max of the rounds; ratio: our GB/s by theirs, the rounds' median"]
    groups = list(dict.fromkeys((path, name) for path, name, _ in keys))
    for group in groups:
        lines += ["", f"{group[1]}, {group[0]}", _head(width) + "ratio".rjust(9)]
        for key in (key for key in keys if key[:2] == group):
            if key not in results.samples:
                lines.append(" " * 4 + key[2].ljust(width) + f"failed: {results.reasons[key]}")
                continue
            times = results.ratio((*group, ours), key, "gbps") if key[2] != ours else None
            ratio = "-" if times is None else f"{times:.2f}"
            cells = "".join(cell(results.spread(key, figure)).rjust(room) for _, figure, room in COLUMNS)
            lines.append(" " * 4 + key[2].ljust(width) + cells + ratio.rjust(9))
    return "\n".join(lines) + "\n"


def figures(results):
    lines = ["path\tlist\twho\tfigure\tmin\tmedian\tmax"]
    for key in results.samples:
        for figure in results.names:
            spread = results.spread(key, figure)
            if spread is not None:
                lines.append("\t".join([*key, figure, *(f"{value:.6g}" for value in spread)]))
    return "\n".join(lines) + "\n"


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _quoted(text):
    return '"' + text.replace('"', "'") + '"'


def _gnuplot(folder, name, script):
    if shutil.which("gnuplot") is None:
        print("no picture: gnuplot is not installed (Debian: gnuplot-nox)")
        return
    script = write(folder, f"{name}.gnuplot", script)
    done = subprocess.run(["gnuplot", os.path.basename(script)], cwd=folder, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        print(f"no picture: gnuplot: {done.stderr.strip()}")
    else:
        print(f"picture: {os.path.join(folder, name + '.svg')}")


def bars(results, folder, name, title, lists):
    """GB/s of the lists, one cluster each, whiskers from min to max."""
    keys = [key for key in results.samples if key[1] in lists]
    groups = list(dict.fromkeys((path, blocks) for path, blocks, _ in keys))
    everybody = list(dict.fromkeys(who for _, _, who in keys))
    if not groups:
        return
    rows = []
    for path, blocks in groups:
        row = [_quoted(f"{blocks}, {path}")]
        for who in everybody:
            row += [f"{value:.6g}" for value in results.spread((path, blocks, who), "gbps") or ()] or ["NaN"] * 3
        rows.append(" ".join(row))
    write(folder, f"{name}.dat", "\n".join(rows) + "\n")
    curves = ", ".join(f"'{name}.dat' using {3 + 3 * i}:{2 + 3 * i}:{4 + 3 * i}:xtic(1) title {_quoted(who)}"
                       for i, who in enumerate(everybody))
    _gnuplot(folder, name, f"""set terminal svg size 1200,560 dynamic background rgb 'white'
set output '{name}.svg'
set title {_quoted(title)}
set style data histogram
set style histogram errorbars gap 2 lw 1
set style fill solid 0.7
set ylabel 'GB/s (more is better)'
set yrange [0:*]
set xtics rotate by -20
set grid y
set key outside right
plot {curves}
""")


def curves(results, folder, name, title, sizes):
    """GB/s of one piece over its size, a curve for each measured system."""
    everybody = list(dict.fromkeys((path, who) for path, blocks, who in results.samples if blocks in sizes))
    parts = []
    for number, (path, who) in enumerate(everybody):
        rows = []
        for blocks, size in sizes.items():
            spread = results.spread((path, blocks, who), "gbps")
            if spread is not None:
                rows.append(f"{size} " + " ".join(f"{value:.6g}" for value in spread))
        write(folder, f"{name}-{number}.dat", "\n".join(rows) + "\n")
        dash = " dt 2" if path == "tcp" else ""
        parts.append(f"'{name}-{number}.dat' using 1:3:2:4 with yerrorlines{dash} title {_quoted(who + ', ' + path)}")
    if not parts:
        return
    _gnuplot(folder, name, f"""set terminal svg size 1000,600 dynamic background rgb 'white'
set output '{name}.svg'
set title {_quoted(title)}
set logscale x 2
set logscale y 10
set format x '%.0b %BB'
set xlabel 'bytes of one get'
set ylabel 'GB/s (more is better)'
set grid
set key outside right
plot {', '.join(parts)}
""")
