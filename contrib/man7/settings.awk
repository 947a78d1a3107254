# The table of settings -> kvcl_settings(7), on stdout. POSIX awk.
#   awk -v version=0.1.0 -f settings.awk src/conf/conf.c src/topo/numa.c src/weave/bulk.c
# The first file has the rows: ROW("NAME", default, TYPE, field, lowest, highest, words, "help"), each on lines of its
# own. All files may have the words: const char *const NAME[] = {"word", ..., NULL}. A bound is a number, a shift of two
# numbers, or INT64_MAX, which means that there is none.

function refuse(what) {
  print what > "/dev/stderr"
  failed = 1
  exit 1
}

function escape(s) {
  gsub(/\\/, "\\e", s)
  gsub(/-/, "\\-", s)
  sub(/^\./, "\\\\\\&.", s)
  sub(/^'/, "\\\\\\&'", s)
  return s
}

# Names of settings, calls and headers are bold.
function prose(s,    out) {
  s = escape(s)
  out = ""
  while (match(s, /KVCL_[A-Z0-9_]*[A-Z0-9]|kvcl_[a-z0-9_.]*[a-z0-9]/)) {
    out = out substr(s, 1, RSTART - 1) "\\fB" substr(s, RSTART, RLENGTH) "\\fP"
    s = substr(s, RSTART + RLENGTH)
  }
  return out s
}

# The text of the strings in s, one behind the other, as C joins them.
function joined(s,    out, one) {
  out = ""
  while (match(s, /"([^"\\]|\\.)*"/)) {
    one = substr(s, RSTART + 1, RLENGTH - 2)
    gsub(/\\"/, "\"", one)
    if (index(one, "\\") > 0) refuse("a string with an escape: " one)
    out = out one
    s = substr(s, RSTART + RLENGTH)
  }
  return out
}

# The words of an array, with commas.
function listed(s,    out) {
  out = ""
  while (match(s, /"[^"]*"/)) {
    out = out (out == "" ? "" : ", ") substr(s, RSTART + 1, RLENGTH - 2)
    s = substr(s, RSTART + RLENGTH)
  }
  return out
}

function number(s,    at, n, times) {
  gsub(/[ ()]/, "", s)
  at = index(s, "<<")
  n = at ? substr(s, 1, at - 1) : s
  times = at ? substr(s, at + 2) : 0
  sub(/[uUlL]+$/, "", n)
  if (n !~ /^-?[0-9]+$/ || times !~ /^[0-9]+$/) refuse("no bound that is understood: " s)
  for (n += 0; times > 0; --times) n *= 2
  return n
}

# As kvcl_size_format and kvcl_time_format write it.
function quantity(value, units,    n, i, name, factor, best, unit) {
  n = split(units, name, " ")
  best = 1; unit = (name[1] == "ns" && value != 0) ? "ns" : ""
  for (i = 1; i < n; i += 2) {
    factor = name[i + 1]
    if (value >= factor && factor > best) { best = factor; unit = name[i] }
  }
  return (value % best == 0) ? sprintf("%.0f%s", value / best, unit) : sprintf("%.2f%s", value / best, unit)
}

function bound(value, type) {
  if (type == "SIZE") return quantity(value, "B 1 K 1024 M 1048576 G 1073741824 T 1099511627776")
  if (type == "TIME") return quantity(value, "ns 1 us 1000 ms 1000000 s 1000000000 m 60000000000 h 3600000000000")
  return sprintf("%.0f", value)
}

# What a value must be; "": any text.
function accepted(type, low, high, array,    s) {
  if (type == "STRING") return ""
  if (type == "BOOL") return "Yes or no"
  if (type == "ENUM") {
    if (!(array in words)) refuse("the words of " array " are not in these files")
    return "One of " words[array]
  }
  if (type == "INT") s = "A whole number"
  else if (type == "SIZE") s = "A size"
  else if (type == "TIME") s = "A time"
  else refuse("a row of the unknown type " type)
  low = number(low)
  if (high == "INT64_MAX") return s ((low == 0) ? "" : ", at least " bound(low, type))
  high = number(high)
  return s ((low == 0 && high == 0) ? "" : ", from " bound(low, type) " to " bound(high, type))
}

# The arguments of ROW(...) -> arg[1..n]: commas in strings do not count.
function arguments(s,    n, c) {
  n = 1
  arg[1] = ""
  while (s != "") {
    c = substr(s, 1, 1)
    if (c == "\"" && match(s, /^"([^"\\]|\\.)*"/)) c = substr(s, 1, RLENGTH)
    if (c == ",") arg[++n] = ""
    else arg[n] = arg[n] c
    s = substr(s, length(c) + 1)
  }
  return n
}

function take_row(s,    n, i) {
  sub(/^ *ROW\(/, "", s)
  sub(/\),? *$/, "", s)
  n = arguments(s)
  if (n != 8) refuse("a row of " n " arguments: " s)
  for (i = 1; i <= n; ++i) { sub(/^ */, "", arg[i]); sub(/ *$/, "", arg[i]) }
  ++rows
  row_name[rows] = joined(arg[1])
  row_dflt[rows] = (arg[2] == "NULL") ? "" : joined(arg[2])
  row_type[rows] = arg[3]; row_low[rows] = arg[5]; row_high[rows] = arg[6]; row_words[rows] = arg[7]
  row_help[rows] = joined(arg[8])
}

function put_row(i,    help, what) {
  help = row_help[i]
  if (help ~ /^[a-z]+,? /) help = toupper(substr(help, 1, 1)) substr(help, 2)
  what = accepted(row_type[i], row_low[i], row_high[i], row_words[i])
  printf ".TP\n.B %s\n%s.\n.br\n", escape(row_name[i]), prose(help)
  printf "Default: %s.", (row_dflt[i] == "") ? "none" : "\\fB" escape(row_dflt[i]) "\\fP"
  printf "%s\n", (what == "") ? "" : " " prose(what) "."
}

FNR == 1 { ++files }

array != "" || /const char \*const +[a-z_]+\[\] *= *[{]/ {
  if (array == "") { array = $0; sub(/\[\].*/, "", array); sub(/.*[^a-z_]/, "", array); text = "" }
  text = text $0
  if ($0 ~ /[}];/) { words[array] = listed(text); array = "" }
  next
}

files == 1 && (row != "" || /^ *ROW\("/) {
  line = $0
  sub(/^ +/, " ", line)
  row = row line
  if ($0 ~ /\),$/) { take_row(row); row = "" }
}

END {
  if (failed) exit 1
  if (row != "" || array != "") refuse("a row or a list has no end")
  if (rows < 10) refuse("the table of settings was not found")
  printf ".\\\" Made from src/conf/conf.c by contrib/man7/settings.awk.\n"
  printf ".TH KVCL_SETTINGS 7 \"\" \"KVCL %s\" \"KVCL\"\n.nh\n.ad l\n", version
  print ".SH NAME\nkvcl_settings \\- environment variables that set how KVCL works\n.SH DESCRIPTION"
  print prose("A context reads these variables when it is created (kvcl_init). The parameters of kvcl_init come before" \
    " them, and they come before the defaults. A variable that is set to nothing counts as not set. A value that is" \
    " not accepted makes kvcl_init fail, with a sentence that names the variable, the value and what is expected. A" \
    " variable KVCL_* of another name is warned about in the log, with the nearest name.")
  print ".PP\n.B kvcl_info \\-\\-settings\nprints the values that hold in its environment, and where each comes from."
  print ".PP\nA size is a number, with a fraction if need be, followed by nothing (bytes), K, M, G or T: powers of 1024."
  print "A time is a number followed by ns, us, ms, s, m or h; without a unit it is in seconds. Yes is y, yes, on, true"
  print "or 1, no is n, no, off, false or 0. Words may be in upper or lower case, except file names."
  print ".SH SETTINGS"
  for (i = 1; i <= rows && !failed; ++i) put_row(i)
  if (failed) exit 1
  print ".SH SEE ALSO\n.BR kvcl_info (1),\n.BR kvcl_init (3),\n.BR kvcl_query_settings (3)"
}
