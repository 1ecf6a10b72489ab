# Sourced by `run` and `refresh`: copies of the project, and patches on them.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
patches=$PWD/tests/mutants/patches
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
mkdir -p "$work"

stop() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

# Two runs at the same time would change each other's copies.
exec 9> "$work/${0##*/}.lock"
flock -n 9 || stop "another one uses $work; wait for its end"

# The names of all mutants. `_switch` is what all of them need, and no mutant.
every_mutant() {
    local patch
    for patch in "$patches"/[a-z]*.patch; do
        basename "$patch" .patch
    done
}

# Git without the repository around the folder: inside one, `git apply` reads paths from its root, and
# changes nothing without saying so. Settings of the user would change what is written.
git_alone() {
    env GIT_DIR=/dev/null GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null git "$@"
}

# Copies the project as it is, with what is not committed, into a new folder. `find` and not
# `git ls-files`: it also works without the repository, in an exported copy.
copy_project() {
    rm -rf "$1"
    mkdir -p "$1"
    find . \( -name target -o -name .git \) -prune -o -type f -print0 |
        tar --create --null --files-from=- | tar --extract --directory="$1"
}

# Applies the patch of this name in a folder: apply FOLDER NAME [option of git apply...]
apply() {
    (cd "$1" && git_alone apply --whitespace=nowarn "${@:3}" "$patches/$2.patch")
}
