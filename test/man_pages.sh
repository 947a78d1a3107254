#!/bin/sh
# The pages of section 3: each exported function and each public header has one, and no word of a header's comments is
# missing. kvcl_settings(7): each setting that kvcl_info prints, with its default and what it accepts. man reports no
# fault in any of them.
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

# Each setting, in the library's order: name, default, help, and what the error for a bad value says that it accepts. A
# text accepts all, and gives no error.
settings=$top_builddir/contrib/man7/kvcl_settings.7
for name in $(env | sed -n 's/^\(KVCL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
info() { "$top_builddir/src/tools/kvcl_info" --settings; }
small() { awk '{ print tolower(substr($0, 1, 1)) substr($0, 2) }'; }
info | awk '$1 ~ /^KVCL_/ { print $1; print $4 == "\"\"" ? "none" : $4; getline; sub(/^ */, ""); print }' >"$tmp/in"
sed 's/\\f[BP]//g; s/\\-/-/g; s/\\e/\\/g; s/\\&//g' "$settings" >"$tmp/page"
awk '/^\.SH/ { inside = /SETTINGS/ }
  inside && /^\.B / { name = $2; getline help; sub(/\.$/, "", help); getline; getline
    sub(/^Default: /, ""); sub(/\.$/, "")
    at = index($0, ". "); print name; print at ? substr($0, 1, at - 1) : $0; print help
    print name, at ? substr($0, at + 2) : "" > "/dev/stderr" }' "$tmp/page" >"$tmp/out" 2>"$tmp/accepted"
n=$(grep -c '^KVCL_' "$tmp/in" || :)
if [ "$n" -lt 30 ]; then fail "kvcl_info --settings lists $n settings"; fi
small <"$tmp/in" >"$tmp/in.small"
small <"$tmp/out" >"$tmp/out.small"
if diff "$tmp/in.small" "$tmp/out.small"; then pass; else fail "kvcl_settings.7 (>) and kvcl_info --settings (<) differ"; fi
while read -r name accepted; do
  said=$(env "$name=?" "$top_builddir/src/tools/kvcl_info" --settings 2>&1 | sed -n "s/.*$name=? is not accepted: //p" |
    sed 's/^expected //; s/)$//; s/ such as [^,]*//; s/from 0ns/from 0/; s/, from \(.*\) to 2562047.79h/, at least \1/
      s/, at least 0$//; s/y or n/yes or no/')
  if [ "$said" = "$(echo "$accepted" | small)" ]; then pass; else fail "$name accepts \"$said\", its page has \"$accepted\""; fi
done <"$tmp/accepted"
if grep -q ' one of .*, ' "$tmp/accepted" || ! grep -q 'One of .*, ' "$tmp/accepted"; then fail "no words found"; fi

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
  for page in "$settings" $(grep -L '^\.so ' "$pages"/*.3); do
    said=$(lint "$page" 2>&1 || :)
    if [ -z "$said" ]; then pass; else fail "$page: $said"; fi
  done
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
