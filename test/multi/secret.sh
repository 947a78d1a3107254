# Sourced by tests whose program makes its own ranks: $tmp is a folder that is removed at the end, and has the secret of
# a job.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
head -c 32 /dev/urandom >"$tmp/secret"
chmod 600 "$tmp/secret"
export KVCL_SECRET_FILE="$tmp/secret"
