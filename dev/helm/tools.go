//go:build tools

// Package tools names the program that the local cluster builds from this module.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
