# Sourced by the scripts that have the stage conform: the programs of conform_all (in/lib.sh), by which contrib/check
# knows what to build.
# shellcheck shell=bash disable=SC2154 # top_builddir is set by the makefile
: "$top_builddir/test/conform/conform_fence" "$top_builddir/test/conform/conform_msg" \
  "$top_builddir/test/conform/conform_req" "$top_builddir/test/conform/conform_layers" \
  "$top_builddir/test/conform/conform_layers_stop" "$top_builddir/test/conform/conform_callback" \
  "$top_builddir/test/conform/conform_stream" "$top_builddir/test/conform/conform_prepare" \
  "$top_builddir/test/conform/conform_tokens" "$top_builddir/test/conform/conform_ctx" \
  "$top_builddir/test/conform/conform_coll" "$top_builddir/test/conform/conform_unsent" \
  "$top_builddir/test/conform/conform_loop" "$top_builddir/test/conform/conform_rma" \
  "$top_builddir/test/conform/conform_keys" "$top_builddir/test/conform/conform_death"
