# The version of this build, for the scripts that include this file from the repository's root.
# shellcheck shell=sh

kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
containerd=$(go list -m -f '{{.Version}}' github.com/containerd/containerd/v2)
cri_tools=$(go list -m -f '{{.Version}}' sigs.k8s.io/cri-tools)
pause_image=$(sed -n 's/^const PauseImage = "\(.*\)"$/\1/p' pkg/core/version/version.go)
pause=${pause_image##*:}

# CORACLE_RELEASE makes a build with the number of another release.
version="$kubernetes+coracle.${CORACLE_RELEASE:-$(cat scripts/RELEASE)}"
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
if [ -z "$(git status --porcelain 2>/dev/null)" ]; then tree=clean; else tree=dirty; fi
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
build_date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
