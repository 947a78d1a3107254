#!/bin/sh
# The pages of section 3: each exported function and each public header has one, man reports no fault in them, and no
# word of a header's comments is missing.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
pages=$top_builddir/contrib/man3/pages
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C
passed=0 failed=0 skipped=0
fail() { echo "FAIL: $*"; failed=$((failed + 1)); }
pass() { passed=$((passed + 1)); }

# A function's page is its header's, or refers to it, and shows its prototype.
"$top_srcdir/contrib/ci/update-map" --print >"$tmp/functions"
[ -s "$tmp/functions" ] || fail "no function found"
while read -r name; do
  page=$pages/$name.3
  if [ ! -s "$page" ]; then
    fail "$name has no page"
    continue
  fi
  target=$(sed -n '1s|^\.so man3/||p' "$page")
  page=$pages/${target:-$name.3}
  if [ -s "$page" ] && grep -qE "^\.B \".*[ *]$name\(" "$page" &&
    sed -n '/^\.SH NAME/{n;p;q;}' "$page" | grep -qE "(^|, )$name(,| )"; then
    pass
  else
    fail "the page of $name does not declare it"
  fi
done <"$tmp/functions"

# The words of a header's comments, and of its page.
comment_words() {
  awk '
    { line = $0 "\n"
      while (line != "") {
        if (inside) {
          end = index(line, "*/")
          if (end == 0) { printf "%s", line; line = "" }
          else { print substr(line, 1, end - 1); line = substr(line, end + 2); inside = 0 }
        } else {
          start = index(line, "/*")
          if (start == 0) line = ""
          else { line = substr(line, start + 2); inside = 1 }
        }
      } }' "$1" | sed 's/@return//g; s/@param *\(\[[a-z,]*\]\)*//g; s/@a / /g' | words
}
page_words() { sed 's/\\f[BIP]//g; s/\\-/-/g; s/\\e/\\/g; s/\\&//g; s/\\(dq/"/g' "$1" | words; }
words() { tr -sc 'A-Za-z0-9_' '\n' | sort -u; }

for header in "$top_srcdir"/include/kvcl/*.h "$top_builddir"/include/kvcl/kvcl_version.h; do
  base=${header##*/}
  base=${base%.h}
  page=$(grep -lx "\.\\\\\" Made from kvcl/$base\.h by .*" "$pages"/*.3 || :)
  if [ ! -f "$page" ]; then
    fail "$base.h has no page, or several: $page"
    continue
  fi
  comment_words "$header" >"$tmp/in"
  page_words "$page" >"$tmp/out"
  lost=$(comm -23 "$tmp/in" "$tmp/out" | tr '\n' ' ')
  if [ -z "$lost" ]; then pass; else fail "$page lacks these words of $base.h: $lost"; fi
  if [ "$(wc -l <"$tmp/in")" -lt 10 ]; then fail "$base.h: no comments found"; fi
done

# Formatters of pages report nothing.
if command -v mandoc >/dev/null 2>&1; then
  lint() { mandoc -T lint -W error "$1"; }
elif command -v man >/dev/null 2>&1 && command -v groff >/dev/null 2>&1; then
  # shellcheck disable=SC2069
  lint() { man --warnings -E UTF-8 -l "$1" 2>&1 >/dev/null; }
else
  lint=no
  skipped=$((skipped + 1))
  echo "SKIP: neither mandoc nor man with groff (Debian: mandoc): nothing looks at how the pages are written"
fi
if [ "${lint-}" != no ]; then
  printf '.TH X 3\n.SH NAME\n.RS 4\n.RE\n.RE\n.nosuch\n' >"$tmp/bad.3"
  if [ -n "$(lint "$tmp/bad.3" 2>&1)" ]; then pass; else fail "a bad page is not noticed"; fi
  for page in $(grep -L '^\.so ' "$pages"/*.3); do
    said=$(lint "$page" 2>&1 || :)
    if [ -z "$said" ]; then pass; else fail "$page: $said"; fi
  done
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
