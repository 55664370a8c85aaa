# Debian packages in a folder, for builds against other libraries than this system's. To be sourced by bash scripts, after setup.sh.
#
#   unpack_sysroot FOLDER ARCHITECTURE SUITE UNWANTED NAME...
#
# Unpacks packages, and what they depend on, into FOLDER; those whose names match the regular expression UNWANTED are left out. SUITE "" is this
# system's, another name that of an older Debian. The packages come from where this system's apt has its own, by lists and a state that lie in
# the folder. Nothing outside the folder is changed, and nothing in a package is run. It does nothing where the folder has what the calling script
# would put there.

unpack_sysroot() {
  local folder=$1 architecture=$2 suite=$3 unwanted=$4
  shift 4
  local stamp state options names package link origin
  stamp=$(cat "$0" "${BASH_SOURCE[0]}" | cksum)
  [ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ] || return 0
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    fail "there is no apt here: unpack the $architecture packages $* into $folder by other means"
  say "unpacking packages into $folder"
  rm -rf "$folder"
  state=$folder/apt
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$folder/packages"
  : >"$state/status"
  # APT::Sandbox::User: as root, apt would download as a user who may not write here.
  options=(-q -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o Dir::State="$state" -o Dir::State::status="$state/status"
    -o Dir::Cache="$state/cache" -o APT::Sandbox::User=root)
  if [ -n "$suite" ]; then
    origin=$(apt-get indextargets --format '$(SITE) $(REPO_URI)' 'Created-By: Packages' | awk '$2 !~ /security/ {print $2; exit}')
    [ -n "$origin" ] || fail "apt names no source of packages"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $origin $suite main" >"$state/sources.list"
    options+=(-o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null)
  fi
  apt-get "${options[@]}" update >"$state/log" 2>&1 || { tail -n 20 "$state/log" >&2; fail "apt cannot read its lists for $architecture"; }
  # The simulated installation into the empty state names all that is needed.
  apt-get "${options[@]}" -s install --no-install-recommends "$@" >"$state/plan" 2>>"$state/log" ||
    { tail -n 20 "$state/log" >&2; fail "apt has not all of these for $architecture: $*"; }
  mapfile -t names < <(sed -n 's/^Inst \([^ ]*\) .*/\1/p' "$state/plan" | grep -Ev "$unwanted")
  [ ${#names[@]} != 0 ] || fail "apt named no packages; see $state/plan"
  (cd "$folder/packages" && apt-get "${options[@]}" download "${names[@]}" >>"$state/log" 2>&1) ||
    { tail -n 20 "$state/log" >&2; fail "apt cannot download the packages for $architecture"; }
  for package in "$folder/packages"/*.deb; do
    dpkg-deb -x "$package" "$folder"
    # Which package has which library: what scripts/packages/deb.py makes dependencies of.
    dpkg-deb -I "$package" shlibs 2>/dev/null >>"$folder/shlibs" || true
  done
  rm -rf "$folder/packages" "$state" "$folder/usr/share" "$folder/usr/src"
  # Links of packages are absolute where they leave their folder: here they would lead into this system.
  find "$folder" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
    ln -sfn "$folder$(readlink "$link")" "$link"
  done
  printf '%s\n' "$stamp" >"$folder/stamp"
}
