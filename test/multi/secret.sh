# Sourced by tests of jobs that no launcher starts: $tmp is a folder that has the secret of a job, and is removed at the
# end. A script that sets another trap removes it there.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
head -c 32 /dev/urandom >"$tmp/secret"
chmod 600 "$tmp/secret"
export KVCL_SECRET_FILE="$tmp/secret"
