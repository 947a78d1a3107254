# One public header -> one page of section 3, on stdout. POSIX awk.
#   awk -v page=kvcl_store -v header=kvcl/kvcl_store.h -v version=0.1.0 -v others="kvcl_cache kvcl_mem" \
#       -v links=FILE -f page.awk kvcl_store.h
# The names of the functions are appended to FILE, one a line.
#
# A header is: a comment (the description), then pieces. A piece is a comment, or a comment and what stands directly
# under it (functions, or types and macros), or one of these alone. Lines that only the compiler needs are left out.
# The comments' form: a blank line ends a paragraph; "   - " begins an item; two more blanks begin a line that stays as
# it is, except after @param and @return, where they continue it.

# ---- roff ----

function escape(s) {
  gsub(/\\/, "\\e", s)
  gsub(/-/, "\\-", s)
  sub(/^\./, "\\\\\\&.", s)
  sub(/^'/, "\\\\\\&'", s)
  return s
}

# A line of text: names of the contract are bold, "@a name" is italic.
function prose(s,    out, at) {
  s = escape(s)
  out = ""
  while (match(s, /@a [A-Za-z_]+|KVCL_[A-Z0-9_]*[A-Z0-9]|kvcl_[a-z0-9_]*[a-z0-9]/)) {
    at = substr(s, RSTART, RLENGTH)
    out = out substr(s, 1, RSTART - 1)
    if (at ~ /^@a /) out = out "\\fI" substr(at, 4) "\\fP"
    else out = out "\\fB" at "\\fP"
    s = substr(s, RSTART + RLENGTH)
  }
  return out s
}

function strip(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }

# ---- a comment's text ----

function leave_literal() { if (literal) body = body ".fi\n.RE\n"; literal = 0 }

function to_block(kind) {
  leave_literal()
  if (kind == "text" && !fresh) body = body ".PP\n"
  fresh = 0
  block = kind
}

function text_line(s,    what) {
  if (s ~ /^[ \t]*$/) { leave_literal(); block = ""; return }
  what = index(s, "@return")
  if (what > 1 && substr(s, 1, what - 1) !~ /^ *$/) { text_line(substr(s, 1, what - 1)); s = substr(s, what) }
  if (s ~ /^ *@return/) {
    leave_literal()
    body = body (fresh ? "" : ".PP\n") ".I Returns:\n"
    fresh = 0; block = "tag"
    s = strip(substr(strip(s), 8))
    if (s != "") body = body prose(s) "\n"
    return
  }
  if (s ~ /^ *@param/) {
    sub(/^ *@param */, "", s)
    sub(/^\[[a-z,]*\] */, "", s)
    to_block("tag")
    what = s
    if (match(s, /  +/)) { what = substr(s, 1, RSTART - 1); s = substr(s, RSTART + RLENGTH) }
    else { sub(/[ ,].*/, "", what); s = substr(s, length(what) + 1) }
    body = body ".TP\n\\fI" escape(what) "\\fP\n"
    s = strip(s)
    body = body (s != "" ? prose(s) "\n" : "")
    return
  }
  if (block == "tag") { body = body prose(strip(s)) "\n"; return }
  if (s ~ /^ ? ? ?- /) {
    to_block("item")
    sub(/^ *- */, "", s)
    body = body ".IP \\(bu 2\n" prose(s) "\n"
    return
  }
  if (block == "item" && s ~ /^   /) { body = body prose(strip(s)) "\n"; return }
  if (s ~ /^  /) {
    if (!literal) { body = body ".PP\n.RS 4\n.nf\n"; fresh = 0 }
    literal = 1
    block = "literal"
    body = body escape(substr(s, 3)) "\n"
    return
  }
  if (block != "text") to_block("text")
  body = body prose(strip(s)) "\n"
}

# The lines of a comment -> roff. The first paragraph begins without a .PP if first is true.
function comment_text(text, first,    n, i, lines) {
  body = ""; literal = 0; block = ""; fresh = first
  n = split(text, lines, "\n")
  for (i = 1; i <= n; ++i) text_line(lines[i])
  leave_literal()
  return body
}

# ---- functions ----

# "KVCL_API kvcl_status_t kvcl_get(...) KVCL_MUST_CHECK;" -> a prototype of lines of at most 76 columns.
function prototype(s,    note, out, line, n, i, args, piece) {
  note = ""
  if (match(s, /\/\*.*\*\//)) { note = strip(substr(s, RSTART + 2, RLENGTH - 4)); s = substr(s, 1, RSTART - 1) }
  gsub(/KVCL_API|KVCL_MUST_CHECK/, "", s)
  gsub(/[ \t]+/, " ", s)
  gsub(/ ;/, ";", s); gsub(/\( /, "(", s)
  s = strip(s)
  n = split(s, args, ", ")
  line = args[1]; out = ""
  for (i = 2; i <= n; ++i) {
    piece = args[i]
    if (length(line) + length(piece) + 3 > 76) { out = out line ",\n"; line = "        " piece }
    else line = line ", " piece
  }
  n = split(out line, args, "\n")
  out = ""
  for (i = 1; i <= n; ++i) out = out ".B \"" quote(args[i]) "\"\n"
  if (note != "") out = out "    " prose(note) "\n"
  return out
}

function quote(s) { s = escape(s); gsub(/"/, "\\(dq", s); return s }

function function_name(s) {
  sub(/\(.*/, "", s)
  s = strip(s)
  sub(/.*[^A-Za-z0-9_]/, "", s)
  return s
}

function take_functions(text, doc,    n, i, decls, name, head) {
  n = split(text, decls, "\001")
  head = ""
  for (i = 1; i <= n; ++i) {
    if (decls[i] == "") continue
    name = function_name(decls[i])
    if (name != page) names = names ", " escape(name)
    print name >> links
    synopsis = synopsis prototype(decls[i])
    head = head prototype(decls[i])
  }
  functions = functions ".PP\n.nf\n" head ".fi\n"
  if (doc != "") functions = functions ".RS 4\n" comment_text(doc, 1) ".RE\n"
}

# ---- types and macros ----

function member(decl, note,    out) {
  out = ".B \"" quote(decl) "\"\n"
  if (decl ~ /^[}]/) out = ".RE\n" out
  if (decl ~ /[{]$/) return out ".RS 4\n"
  return out (note != "" ? ".RS 4\n" prose_lines(note) ".RE\n" : ".br\n")
}

function prose_lines(note,    n, i, lines, out) {
  n = split(note, lines, "\n")
  out = ""
  for (i = 1; i <= n; ++i) if (strip(lines[i]) != "") out = out prose(strip(lines[i])) "\n"
  return out
}

# Code as it is, without the blanks before a macro's backslashes.
function verbatim(text,    n, i, lines, out) {
  n = split(text, lines, "\n")
  out = ".RS 4\n.nf\n"
  for (i = 1; i <= n; ++i) {
    sub(/[ \t]+\\$/, " \\", lines[i])
    if (lines[i] != "") out = out escape(lines[i]) "\n"
  }
  return out ".fi\n.RE\n"
}

# Lines of declarations, each with a comment behind it, or above it, perhaps of several lines.
function declarations(text,    n, i, lines, s, note, above, open, decl, out) {
  n = split(text, lines, "\n")
  out = ".RS 4\n"; note = ""; above = ""; open = 0; decl = ""
  for (i = 1; i <= n; ++i) {
    s = lines[i]
    if (open) {
      sub(/^ *\*? ?/, "", s)
    } else if (index(s, "/*") > 0) {
      decl = strip(substr(s, 1, index(s, "/*") - 1))
      s = substr(s, index(s, "/*") + 2)
      note = ""; open = 1
    } else {
      if (strip(s) != "") { out = out member(strip(s), above); above = "" }
      continue
    }
    if (index(s, "*/") > 0) { open = 0; sub(/ *\*\/.*/, "", s) }
    note = note "\n" s
    if (open) continue
    if (decl == "") above = above note
    else { out = out member(decl, above note); above = "" }
  }
  return out ".RE\n"
}

function take_code(text, doc,    one) {
  types = types ".PP\n"
  if (doc != "") types = types comment_text(doc, 1)
  if (types ~ /\.RE\n$/ && doc != "") types = types ".PP\n"
  one = (text ~ /\\\n/ || text !~ /\/\*/)
  types = types (one ? verbatim(text) : declarations(text))
}

# ---- the pieces ----

function end_piece(keep_doc) {
  if (decls != "") { take_functions(decls, doc); decls = ""; doc = "" }
  if (code != "") { take_code(code, keep_doc ? "" : doc); code = ""; if (!keep_doc) doc = "" }
}

# A comment with nothing under it explains what comes next.
function loose_comment() {
  if (doc != "" && decls == "" && code == "") { functions = functions comment_text(doc, 0); doc = "" }
}

function first_sentence(text,    n, lines, i, s) {
  n = split(text, lines, "\n")
  s = ""
  for (i = 1; i <= n && strip(lines[i]) != "" || s == ""; ++i) {
    if (i > n) break
    s = s (s == "" ? "" : " ") strip(lines[i])
  }
  if (match(s, /\.( |$)/)) s = substr(s, 1, RSTART - 1)
  return s
}

BEGIN { state = "start"; depth = 0 }

# Skip what C++ or the compiler alone needs.
skipping {
  if ($0 ~ /^#[ ]*if/) ++nested
  else if ($0 ~ /^#[ ]*endif/) { if (nested-- == 0) skipping = 0 }
  else if ($0 ~ /^#[ ]*else/ && nested == 0) { skipping = 0; after_skip = 1 }
  next
}
state != "comment" && /^#[ ]*ifdef __cplusplus/ { skipping = 1; nested = 0; next }
after_skip && /^#[ ]*endif/ { after_skip = 0; next }
state != "comment" && /^#[ ]*(include|(ifndef|define) KVCL_([A-Z_]*_)?H$)/ { next }
state != "comment" && /^#endif$/ { next }
state != "comment" && (/KVCL_(BEGIN|END)_DECLS/) { next }

state == "comment" {
  s = $0
  closed = index(s, "*/") > 0
  sub(/ *\*\/.*/, "", s)
  sub(/^ ?\*( |$)?/, "", s)
  if (!(closed && s ~ /^ *$/)) comment = comment "\n" s
  if (closed) {
    state = "open"
    if (!described) { description = comment; described = 1 } else { doc = comment }
  }
  next
}

state == "inline" { if ($0 ~ /^[}]/) state = "open"; next }

state == "function" {
  decls = decls " " strip($0)
  if ($0 ~ /;/) state = "open"
  next
}

state == "code" {
  code = code "\n" $0
}

state == "open" || state == "start" {
  if ($0 ~ /^\/\*/) {
    end_piece(0)
    loose_comment()
    s = $0
    sub(/^\/\*\*? ?/, "", s)
    closed = index(s, "*/") > 0
    sub(/ *\*\/.*/, "", s)
    comment = s
    if (!closed) { state = "comment"; next }
    state = "open"
    if (!described) { description = comment; described = 1 } else { doc = comment }
    next
  }
  if ($0 ~ /^[ \t]*$/) { end_piece(0); loose_comment(); next }
  if ($0 ~ /^KVCL_API/ || $0 ~ /^static inline/) {
    if (code != "") { end_piece(1) }
    s = $0
    if ($0 ~ /^static inline/) { sub(/[ \t]*[{].*/, "", s); s = s ";"; state = ($0 ~ /[}][ \t]*$/) ? "open" : "inline" }
    else if ($0 !~ /;/) state = "function"
    decls = decls "\001" s
    next
  }
  if (decls != "") end_piece(0)
  code = code (code == "" ? "" : "\n") $0
  depth = 0
  state = "code"
}

state == "code" {
  s = $0
  gsub(/\/\*.*\*\//, "", s)
  depth += gsub(/[{(]/, "", s) - gsub(/[)}]/, "", s)
  if ($0 ~ /\/\*/ && $0 !~ /\*\//) in_note = 1
  if ($0 ~ /\*\//) in_note = 0
  if (depth <= 0 && !in_note && $0 !~ /\\$/) { depth = 0; state = "open" }
}

END {
  if (state != "open") { print header ": ends within a piece" > "/dev/stderr"; exit 1 }
  end_piece(0); loose_comment()
  if (!described) { print header ": no comment at the top" > "/dev/stderr"; exit 1 }
  title = toupper(page)
  printf ".\\\" Made from %s by contrib/man3/page.awk.\n", header
  printf ".TH %s 3 \"\" \"KVCL %s\" \"KVCL Library Functions\"\n", title, version
  printf ".nh\n.ad l\n"
  printf ".SH NAME\n%s%s \\- %s\n", page, names, escape(first_sentence(description))
  printf ".SH SYNOPSIS\n.nf\n.B #include <%s>\n%s.fi\n", header, (synopsis == "") ? "" : ".PP\n" synopsis
  printf ".SH DESCRIPTION\n%s", comment_text(description, 1)
  if (functions != "") printf ".SH FUNCTIONS\n%s", functions
  if (types != "") printf ".SH TYPES AND CONSTANTS\n%s", types
  printf ".SH SEE ALSO\n"
  n = split(others, other, " ")
  for (i = 1; i <= n; ++i) printf ".BR %s (3),\n", other[i]
  printf ".BR kvcl_info (1),\n.BR kvcl_settings (7)\n"
}
