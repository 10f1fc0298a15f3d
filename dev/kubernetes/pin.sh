#!/bin/sh
# Pins one Kubernetes version: writes go.mod, go.sum and tools.go into the folder of its minor.
# Usage: dev/kubernetes/pin.sh 1.37.2
#
# k8s.io/kubernetes requires its staging modules at v0.0.0, so every module that the replace
# block of its own go.mod names gets a replace of ours to the published version (v0.37.2).
set -eu
version=${1:?usage: pin.sh 1.37.2}
minor=${version%.*}
staging=v0.${version#1.}
cd "$(dirname "$0")"
mkdir -p "$minor"
cd "$minor"
rm -f go.sum
upstream=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
{
	echo "// Pinned by dev/kubernetes/pin.sh $version"
	echo "module holdfast.local/kubernetes-$minor"
	echo
	sed -n '/^go /p' "$upstream"
	echo
	sed -n '/^godebug /p' "$upstream"
	echo
	echo "require k8s.io/kubernetes v$version"
	echo
	echo "replace ("
	sed -n "s|^\t\(k8s.io/[a-z-]*\) => ./staging/.*|\t\1 => \1 $staging|p" "$upstream"
	echo ")"
} >go.mod
cat >tools.go <<'GO'
//go:build tools

// Package tools names the programs that the local cluster builds from this module.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
GO
go mod tidy
