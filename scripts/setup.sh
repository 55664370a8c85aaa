# Functions that get what the scripts need: system packages and virtual environments. To be sourced by bash scripts.
#
#   need_packages NAME...     installs what is missing with apt; ends the script when something required stays missing
#   want_packages NAME...     the same, but only warns
#   make_venv DIR FILE        a virtual environment with the packages of a requirements file; does nothing when it is there
#   build_library             configures the release preset as a quick build, and builds the library
#
# The names are Debian's; have_package says how each is recognized, so that a system without apt can have them otherwise.

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD_PACKAGES=(cmake ninja-build g++ libyaml-cpp-dev libgtest-dev opencl-headers)
IMAGE_PACKAGES=(pkg-config libjpeg-dev libpng-dev libtiff-dev libwebp-dev libopenjp2-7-dev)
COLLECTIVE_PACKAGES=(libopenmpi-dev openmpi-bin libgloo-dev)
OPENCL_PACKAGES=(ocl-icd-libopencl1 pocl-opencl-icd)

say() { printf '%s\n' "$*" >&2; }
fail() { say "$(basename "$0"): $*"; exit 1; }

have_file() {
  local pattern
  for pattern in "$@"; do
    compgen -G "$pattern" >/dev/null && return 0
  done
  return 1
}

# Whether what a package brings is there.
have_package() {
  case $1 in
    cmake) command -v cmake >/dev/null && [ "$(printf '%s\n' 3.25 "$(cmake --version | sed -n '1s/[^0-9]*//p')" | sort -V | head -1)" = 3.25 ] ;;
    ninja-build) command -v ninja >/dev/null ;;
    g++) command -v c++ >/dev/null ;;
    clang-14) command -v clang++-14 >/dev/null ;;
    ccache | pkg-config | git | npm | cargo | rustfmt | luajit | doxygen) command -v "$1" >/dev/null ;;
    nodejs) command -v node >/dev/null ;;
    openjdk-17-jdk-headless) command -v javac >/dev/null ;;
    maven) command -v mvn >/dev/null ;;
    gcc-aarch64-linux-gnu) command -v aarch64-linux-gnu-gcc >/dev/null ;;
    g++-aarch64-linux-gnu) command -v aarch64-linux-gnu-g++ >/dev/null ;;
    qemu-user) command -v qemu-aarch64 >/dev/null ;;
    rust-clippy) command -v cargo-clippy >/dev/null ;;
    nodejs) command -v node >/dev/null ;;
    python3-venv) "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null ;;
    libyaml-cpp-dev) have_file /usr{,/local}/include/yaml-cpp/eventhandler.h && have_file /usr{,/local}/lib{,64,/*}/libyaml-cpp.a ;;
    libgtest-dev) have_file /usr{,/local}/include/gtest/gtest.h && have_file /usr{,/local}/lib{,64,/*}/libgtest.* ;;
    opencl-headers) have_file /usr{,/local}/include/CL/cl.h ;;
    ocl-icd-libopencl1) have_file /usr{,/local}/lib{,64,/*}/libOpenCL.so.1 ;;
    pocl-opencl-icd) have_file "${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}"/pocl*.icd ;;
    *) dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed' ;;
  esac
}

# Whether some OpenCL driver is installed, PoCL or a real one.
have_opencl_driver() { have_package ocl-icd-libopencl1 && have_file "${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}"/*.icd; }

missing_packages() {
  local name
  for name in "$@"; do
    have_package "$name" || printf '%s ' "$name"
  done
}

# Runs a command as root: as we are, or with sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "neither root nor sudo: cannot run $*"
    return 1
  fi
}

apt_install() {
  say "installing with apt: $*"
  local lock  # parts of scripts/test run side by side, and apt waits for nobody
  mkdir -p "$REPOSITORY/build"
  exec {lock}>"$REPOSITORY/build/apt.lock"
  flock "$lock"
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@")
  as_root "${install[@]}" >&2 || { as_root apt-get update -q >&2 && as_root "${install[@]}" >&2; }
  local status=$?
  exec {lock}>&-
  return $status
}

want_packages() {
  local missing
  read -r -a missing <<<"$(missing_packages "$@")"
  [ ${#missing[@]} = 0 ] && return 0
  if command -v apt-get >/dev/null; then
    apt_install "${missing[@]}" || true
    read -r -a missing <<<"$(missing_packages "${missing[@]}")"
    [ ${#missing[@]} = 0 ] && return 0
    say "missing, and apt could not install it: ${missing[*]}"
  else
    say "missing on this system, which has no apt (Debian's names): ${missing[*]}"
  fi
  return 1
}

need_packages() { want_packages "$@" || fail "cannot go on without: $(missing_packages "$@")"; }

make_venv() {
  local folder=$1 file=$2 wanted
  wanted=$(cat "$(dirname "$file")"/requirements*.txt | cksum)
  [ -x "$folder/bin/python" ] && [ "$(cat "$folder/requirements.cksum" 2>/dev/null)" = "$wanted" ] && return 0
  need_packages python3-venv
  say "making the virtual environment $folder"
  "${PYTHON:-python3}" -m venv "$folder" || fail "cannot make the virtual environment $folder"
  "$folder/bin/python" -m pip install -q --disable-pip-version-check -r "$file" ||
    fail "pip cannot install what $file lists: is there a network?"
  printf '%s\n' "$wanted" >"$folder/requirements.cksum"
}

build_library() {
  (cd "$REPOSITORY" && cmake --preset release -DEVN_QUICK_BUILD=ON >/dev/null && cmake --build --preset release --target evener >&2) ||
    fail "the build failed"
}
