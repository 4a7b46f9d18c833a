#!/bin/sh
# Installs persistent_dense_gemm from the unpacked package that this script lies in, and removes it
# again. It needs neither a network nor root, unless the prefix does.
#
# The list of installed files is written to the prefix before the first of them is copied. So
# whatever ends an installation, --uninstall removes what is there of it.
set -eu
umask 022
LC_ALL=C
export LC_ALL

name=persistent_dense_gemm
version=@VERSION@
machine=@MACHINE@
glibc=2.28
data=share/persistent_gemm
manifest=$data/manifest

usage() {
    cat <<USAGE
usage: install.sh [--prefix FOLDER]
       install.sh --uninstall [--prefix FOLDER]

Installs $name $version (libraries, command, examples, documents, Python wheel) into a folder.

  --prefix FOLDER  absolute path of the folder; default: /opt/$name, or, for the copy of this
                   script in an installation, that installation
  --uninstall      remove the files that were installed, and the folders that were made for them
  --help           print this text

The exit status is 0 on success and 1 otherwise. An installation that fails leaves nothing.
USAGE
}

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

# Prints the user who runs this.
user() {
    id -un 2>/dev/null || id -u
}

parse() {
    prefix=
    action=install
    while [ $# -gt 0 ]; do
        case $1 in
        --prefix)
            [ $# -ge 2 ] || fail "--prefix needs a folder; see --help"
            prefix=$2
            shift
            ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --uninstall) action=uninstall ;;
        --help | -h)
            usage
            exit 0
            ;;
        *) fail "unknown argument '$1'; see --help" ;;
        esac
        shift
    done
    if [ -z "$prefix" ]; then
        case $package in
        */"$data") prefix=${package%/"$data"} ;;
        *) prefix=/opt/$name ;;
        esac
    fi
    case $prefix in
    *'
'*) fail "the prefix must not contain a line break" ;;
    /*) ;;
    *) fail "the prefix '$prefix' is not absolute; give a path that begins with /, such as $PWD/$prefix" ;;
    esac
    while [ "$prefix" != / ] && [ "${prefix%/}" != "$prefix" ]; do
        prefix=${prefix%/}
    done
}

# Prints the files that are installed, one a line: those of the package, and this script.
payload() {
    awk 'sub(/^[0-9a-f]+  /, "") && /^(bin|include|lib|share)\//' "$package/SHA256SUMS"
    echo "$data/install.sh"
}

# Prints the folders of the paths on stdin, and the folders of those, each once, outer ones first.
folders() {
    awk '{ while (sub("/[^/]*$", "")) if (!seen[$0]++) print }' | sort
}

# Fails if the package is not complete and unchanged.
check_package() {
    [ -f "$package/SHA256SUMS" ] ||
        fail "$package has no SHA256SUMS: start install.sh in the unpacked package, or give --uninstall"
    command -v sha256sum >/dev/null || fail "sha256sum is needed to check the package; install coreutils"
    if ! damaged=$(cd "$package" && sha256sum --check --quiet SHA256SUMS 2>&1); then
        echo "$damaged" >&2
        fail "the package in $package is damaged: unpack the archive again, or download it again"
    fi
}

# Fails on a system that cannot load the libraries.
check_system() {
    found=$(uname -m)
    [ "$found" = "$machine" ] || fail "this package is for $machine, and this machine is $found; take the package for $found"
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc=none
    case $libc in
    "glibc "*) ;;
    *) fail "glibc $glibc or later is needed, and this system has another C library; use a system with glibc" ;;
    esac
    libc=${libc#glibc }
    oldest=$(printf '%s\n' "$glibc" "$libc" | sort -t . -k 1,1n -k 2,2n | head -n 1)
    [ "$oldest" = "$glibc" ] || fail "glibc $glibc or later is needed, and this system has $libc; use a newer system"
}

# Fails if something is in the way, or the prefix cannot be written or has too little space.
check_prefix() {
    if [ -f "$prefix/$manifest" ]; then
        installed=$(sed -n 's/^version //p' "$prefix/$manifest")
        fail "$prefix already has $name $installed: remove it first by $prefix/$data/install.sh --uninstall"
    fi
    existing=$prefix
    while [ ! -e "$existing" ] && [ ! -L "$existing" ]; do
        existing=$(dirname "$existing")
    done
    [ -d "$existing" ] || fail "$existing is in the way: it is not a folder; move it, or give another --prefix"
    { [ -w "$existing" ] && [ -x "$existing" ]; } ||
        fail "$existing cannot be written by $(user): run as root, or give a --prefix of your own, such as \$HOME/.local"
    payload | folders | while IFS= read -r folder; do
        target=$prefix/$folder
        if [ -d "$target" ]; then
            { [ -w "$target" ] && [ -x "$target" ]; } ||
                fail "$target cannot be written by $(user): run as root, or give another --prefix"
        elif [ -e "$target" ] || [ -L "$target" ]; then
            fail "$target is in the way: it is not a folder; move it, or give another --prefix"
        fi
    done
    payload | while IFS= read -r file; do
        target=$prefix/$file
        if [ -e "$target" ] || [ -L "$target" ]; then
            fail "$target is in the way: no installation of $name has written it; move it, or give another --prefix"
        fi
    done
    needed=$(du -sk "$package" | cut -f 1)
    free=$(df -Pk "$existing" | awk 'NR == 2 { print $4 }')
    [ "$free" -gt "$needed" ] ||
        fail "$needed KiB are needed in $existing, and $free KiB are free there; make space, or give another --prefix"
}

# Prints a folder and those above it that are not there, outer ones first.
missing_folders() {
    [ ! -d "$1" ] || return 0
    missing_folders "$(dirname "$1")"
    printf '%s\n' "$1"
}

install_package() {
    check_package
    check_system
    check_prefix
    made=$(
        missing_folders "$prefix"
        payload | folders | while IFS= read -r folder; do
            [ -d "$prefix/$folder" ] || printf '%s\n' "$prefix/$folder"
        done
    )
    trap 'roll_back' EXIT
    trap 'exit 1' HUP INT TERM
    mkdir -p "$prefix/$data"
    {
        echo "$name"
        echo "version $version"
        printf '%s\n' "$made" | sed 's/^/folder /'
        payload | sed 's/^/file /'
    } >"$prefix/$manifest"
    payload | while IFS= read -r file; do
        mkdir -p "$prefix/$(dirname "$file")"
        from=$package/$file
        [ "$file" != "$data/install.sh" ] || from=$package/install.sh
        cp -P "$from" "$prefix/$file"
        # The archive may have been unpacked with fewer permissions.
        if [ ! -L "$prefix/$file" ]; then
            mode=644
            [ ! -x "$from" ] || mode=755
            chmod $mode "$prefix/$file"
        fi
    done
    trap - EXIT

    cat <<INSTALLED
$name $version is installed in $prefix. To use it:

  export PATH="$prefix/bin:\$PATH"                   # pgemm, host_demo
  export LD_LIBRARY_PATH="$prefix/lib"              # for programs that are linked with the library
  export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"    # for pkg-config persistent_gemm
  cmake -DCMAKE_PREFIX_PATH="$prefix" ...           # for find_package(persistent_gemm)
INSTALLED
    for wheel in "$prefix/$data/wheel/"*.whl; do
        [ ! -f "$wheel" ] || echo "  python3 -m pip install \"$wheel\""
    done
    echo
    echo "To remove it: $prefix/$data/install.sh --uninstall"
}

# Removes what an installation that failed has written. Nothing of it was there before.
# shellcheck disable=SC2317 # the trap calls it
roll_back() {
    trap - EXIT
    echo "install.sh: the installation in $prefix failed, and what it had written is removed" >&2
    remove "$(payload)" "$made"
    exit 1
}

uninstall_package() {
    [ -f "$prefix/$manifest" ] ||
        fail "$prefix has no installation of $name: there is no $prefix/$manifest; give the --prefix of the installation"
    [ "$(head -n 1 "$prefix/$manifest")" = "$name" ] ||
        fail "$prefix/$manifest is no list of files of $name; nothing is removed"
    files=$(sed -n 's/^file //p' "$prefix/$manifest")
    # The list is of names below the prefix, none of which leads out of it.
    if printf '%s\n' "$files" | grep -q -E '^/|(^|/)\.\.(/|$)'; then
        fail "$prefix/$manifest names a file outside of $prefix; nothing is removed"
    fi
    printf '%s\n' "$files" | folders | while IFS= read -r folder; do
        [ ! -d "$prefix/$folder" ] || [ -w "$prefix/$folder" ] ||
            fail "$prefix/$folder cannot be written by $(user): run as the user who installed it, or as root; nothing is removed"
    done
    remove "$files" "$(sed -n 's/^folder //p' "$prefix/$manifest")"
    echo "$name is removed from $prefix"
}

# Removes files below the prefix and the list of them, and folders that are empty then.
remove() { # files, folders
    printf '%s\n' "$1" | while IFS= read -r file; do
        rm -f "$prefix/$file"
    done
    rm -f "$prefix/$manifest"
    # Inner folders come first in this order.
    printf '%s\n' "$2" | sort -r | while IFS= read -r folder; do
        rmdir "$folder" 2>/dev/null || true
    done
}

# The whole script is read before it starts, because --uninstall also removes the script.
main() {
    package=$(cd "$(dirname "$0")" && pwd -P)
    parse "$@"
    case $action in
    install) install_package ;;
    uninstall) uninstall_package ;;
    esac
    exit 0
}

main "$@"
