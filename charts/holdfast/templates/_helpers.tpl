{{- /*
Names are fixed, not made from the release's name: the definitions are cluster-wide, so there is one Holdfast in a
cluster, and the operator, its documentation and its alerts know these names.
*/}}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/component: operator
{{- end }}

{{- define "holdfast.labels" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: holdfast
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* What the schema cannot say because it concerns two values at once. */}}
{{- define "holdfast.validate" -}}
{{- if not .Values.image.operator }}
{{- fail "image.operator is required: give the full reference of the operator image, for example registry.example/holdfast-operator:0.1.0" }}
{{- end }}
{{- if not .Values.image.mover }}
{{- fail "image.mover is required: give the full reference of the mover image, for example registry.example/holdfast-mover:0.1.0" }}
{{- end }}
{{- if and .Values.features.credentialProjection.enabled (not .Values.admissionPolicies.enabled) }}
{{- fail "features.credentialProjection.enabled gives the operator the right to write Secrets in every namespace, which an admission policy bounds to copies of credentials: set admissionPolicies.enabled: true, or leave the feature off" }}
{{- end }}
{{- with .Values.leaderElection }}
{{- if ge (int .renewDeadlineSeconds) (int .leaseDurationSeconds) }}
{{- fail "leaderElection.renewDeadlineSeconds must be less than leaderElection.leaseDurationSeconds: otherwise two leaders could write at once" }}
{{- end }}
{{- if ge (mul 2 (int .retryPeriodSeconds)) (int .renewDeadlineSeconds) }}
{{- fail "leaderElection.retryPeriodSeconds must be less than half of leaderElection.renewDeadlineSeconds: otherwise one slow request costs the lease" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The user that the operator is to the API server. */}}
{{- define "holdfast.operatorUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:holdfast-operator
{{- end }}

{{- /* The binding that puts a policy in force everywhere: a list of the root and the policy's name. */}}
{{- define "holdfast.binding" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "holdfast.labels" $root | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end }}
