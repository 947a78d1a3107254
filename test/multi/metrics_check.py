"""Check a text of Prometheus' exposition format, version 0.0.4, against the rules of "promtool check metrics" and of
Prometheus' naming. Prints each fault, exits 1 if there is one. Usage: metrics_check.py FILE"""
import math
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(r"^(%s)(?:\{(.*)\})? (\S+)$" % NAME)
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
TYPES = ("counter", "gauge", "histogram", "summary", "untyped")
WRONG_UNITS = ("nanoseconds", "microseconds", "milliseconds", "minutes", "hours", "ns", "us", "ms", "kilobytes",
               "megabytes", "kib", "mib", "bits", "percent")


def labels_of(text):
    """The labels of a sample, or None if they are malformed."""
    labels, at = {}, 0
    while at < len(text):
        found = LABEL.match(text, at)
        if not found or found.group(1) in labels:
            return None
        labels[found.group(1)] = found.group(2)
        at = found.end()
    return labels


def number(text):
    try:
        return float(text.replace("+Inf", "inf"))
    except ValueError:
        return None


def name_faults(name, kind):
    words = name.split("_")
    if (kind == "counter") != (words[-1] == "total"):
        yield "a counter, and nothing else, ends in _total"
    if kind != "histogram" and words[-1] in ("bucket", "count", "sum"):
        yield "ends as a part of a histogram"
    if name != name.lower() or ":" in name:
        yield "not in lower case with underscores"
    for word in set(words) & set(WRONG_UNITS):
        yield "unit %s: seconds, bytes and ratios are the units" % word
    for unit in ("bytes", "seconds"):
        rest = words[:-1] if kind == "counter" else words
        if unit in rest[:-1]:
            yield "the unit %s is not last" % unit
    if kind in words:
        yield "names its type"


def histogram_faults(name, samples):
    """samples: (suffix, labels, value) of one family."""
    series = {}
    for suffix, labels, value in samples:
        key = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        one = series.setdefault(key, {"buckets": []})
        if suffix == "_bucket":
            if "le" not in labels or number(labels["le"]) is None:
                yield "%s: a bucket without le" % (key,)
                continue
            one["buckets"].append((number(labels["le"]), value))
        elif suffix in one or "le" in labels:
            yield "%s: twice, or with le: %s" % (key, suffix)
        else:
            one[suffix] = value
    for key, one in series.items():
        bounds = [b for b, _ in one["buckets"]]
        counts = [c for _, c in one["buckets"]]
        if "_sum" not in one or "_count" not in one:
            yield "%s: no _sum or no _count" % (key,)
            continue
        if not bounds or not math.isinf(bounds[-1]) or counts[-1] != one["_count"]:
            yield "%s: the last bucket is not +Inf with the count" % (key,)
        if bounds != sorted(set(bounds)) or counts != sorted(counts):
            yield "%s: bounds or counts do not grow" % (key,)


def faults(text):
    if not text.endswith("\n"):
        yield "the last line does not end"
    helps, kinds, families, order = {}, {}, {}, []
    for number_, line in enumerate(text.splitlines(), 1):
        if line == "" or (line.startswith("#") and not re.match(r"# (HELP|TYPE) ", line)):
            continue
        if line.startswith("#"):
            word, name, rest = (line[2:].split(" ", 2) + ["", ""])[:3]
            seen = helps if word == "HELP" else kinds
            if not re.fullmatch(NAME, name) or name in seen or name in families or rest == "":
                yield "line %d: bad, repeated or late: %s" % (number_, line)
            if word == "TYPE" and rest not in TYPES:
                yield "line %d: no type: %s" % (number_, line)
            seen[name] = rest
            continue
        found = SAMPLE.match(line)
        labels = labels_of(found.group(2) or "") if found else None
        if labels is None or number(found.group(3)) is None:
            yield "line %d: no sample: %s" % (number_, line)
            continue
        family, suffix = found.group(1), ""
        for end in ("_bucket", "_sum", "_count"):
            if family.endswith(end) and kinds.get(family[:-len(end)]) == "histogram":
                family, suffix = family[:-len(end)], end
        if family not in families:
            families[family] = []
            order.append(family)
        elif order[-1] != family:
            yield "line %d: the samples of %s do not stand together" % (number_, family)
        if any(l == labels and s == suffix for s, l, _ in families[family]):
            yield "line %d: twice: %s" % (number_, line)
        if kinds.get(family) == "counter" and number(found.group(3)) < 0:
            yield "line %d: a counter below 0" % number_
        families[family].append((suffix, labels, number(found.group(3))))
    for family, samples in families.items():
        if family not in helps or family not in kinds:
            yield "%s: no HELP or no TYPE" % family
            continue
        for fault in name_faults(family, kinds[family]):
            yield "%s: %s" % (family, fault)
        if kinds[family] == "histogram":
            for fault in histogram_faults(family, samples):
                yield "%s%s" % (family, fault)


def itself():
    """Bad texts that the check must reject."""
    good = ("# HELP a_seconds x\n# TYPE a_seconds histogram\na_seconds_bucket{le=\"1\"} 1\n"
            "a_seconds_bucket{le=\"+Inf\"} 2\na_seconds_sum 3\na_seconds_count 2\n"
            "# HELP b_total x\n# TYPE b_total counter\nb_total{r=\"0\"} 1\nb_total{r=\"1\"} 1\n")
    assert not list(faults(good)), list(faults(good))
    for old, new in (("a_seconds_count 2", "a_seconds_count 3"), ("le=\"+Inf\"", "le=\"2\""), ("r=\"1\"", "r=\"0\""),
                     ("b_total", "b"), ("a_seconds", "a_ms"), ("# HELP b_total x\n", ""), ("\"1\"} 1", "\"1\"} x"),
                     ("le=\"1\"} 1", "le=\"1\"} 7"), ("r=\"1\"", "r=\"1"), ("counter", "number"), ("_sum 3", " 3")):
        bad = good.replace(old, new)
        assert bad != good and list(faults(bad)), (old, new)


itself()
with open(sys.argv[1], encoding="utf-8", errors="strict") as f:
    found = list(faults(f.read()))
for fault in found:
    print(fault)
sys.exit(1 if found else 0)
