{{/* What a schema cannot say: values that contradict each other, or that would do harm. */}}
{{- define "concur-proxy.checks" -}}
{{- $config := .Values.config -}}
{{- $fleet := dig "fleet" dict $config -}}
{{- if not (or $config.backends $fleet.dns $fleet.file $fleet.kubernetes_service) -}}
{{- fail "there is no engine to proxy: set config.backends, such as [http://vllm:8000], or config.fleet.dns, such as [http://vllm-headless:8000]" -}}
{{- end -}}
{{- $shared := or .Values.redis.enabled (not (empty (dig "state" "" $config))) -}}
{{- range .Values.env -}}{{- if eq .name "CONCUR_STATE__URL" -}}{{- $shared = true -}}{{- end -}}{{- end -}}
{{- $several := or (gt (int .Values.replicaCount) 1) .Values.autoscaling.enabled -}}
{{- if and $several (not $shared) (not .Values.independentReplicas) -}}
{{- fail "several replicas need shared state: set redis.enabled or config.state.url; or independentReplicas, if each may admit a whole window of its own" -}}
{{- end -}}
{{- if and .Values.redis.enabled (dig "state" "" $config) -}}
{{- fail "redis.enabled and config.state are two places for one thing: take one of them" -}}
{{- end -}}
{{- if not .Values.configAsSecret -}}
{{- range $number, $backend := $config.backends -}}
{{- if and (kindIs "map" $backend) (hasKey $backend "api_key") -}}
{{- fail (printf "config.backends[%d].api_key is a secret, and a ConfigMap is none: set configAsSecret" $number) -}}
{{- end -}}
{{- end -}}
{{- if dig "server" "admin_token" "" $config -}}
{{- fail "config.server.admin_token is a secret: use admin.token or admin.existingSecret" -}}
{{- end -}}
{{- if dig "auth" "keys" "" $config -}}
{{- fail "config.auth.keys holds what keys are checked with: use auth.keys or auth.existingSecret" -}}
{{- end -}}
{{- if and (kindIs "map" $config.state) (dig "state" "password" "" $config) -}}
{{- fail "config.state.password is a secret: give it by env (CONCUR_STATE__PASSWORD), or set configAsSecret" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.auth.keys .Values.auth.existingSecret -}}
{{- fail "auth.keys and auth.existingSecret are two places for one thing: take one of them" -}}
{{- end -}}
{{- if and .Values.admin.token .Values.admin.existingSecret -}}
{{- fail "admin.token and admin.existingSecret are two places for one thing: take one of them" -}}
{{- end -}}
{{- if and .Values.tls.clientCA (not .Values.tls.existingSecret) -}}
{{- fail "tls.clientCA needs tls.existingSecret, with the authority under ca.crt" -}}
{{- end -}}
{{- $needed := add (int .Values.preStopSeconds) (int (include "concur-proxy.grace" .)) -}}
{{- if lt (int (include "concur-proxy.termination" .)) (int $needed) -}}
{{- fail (printf "terminationGracePeriodSeconds must be %d or more: preStopSeconds and config.server.grace_s together; less would cut running streams" $needed) -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor would scrape everything twice: take one of them" -}}
{{- end -}}
{{- if and .Values.keda.enabled (not .Values.keda.scaleTargetRef.name) -}}
{{- fail "keda.scaleTargetRef.name must say what is scaled: the Deployment of your engines" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.parentRefs must name a gateway" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts must name a host" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.egress) -}}
{{- fail "networkPolicy.egress must let the proxies out to the engines" -}}
{{- end -}}
{{- if lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas) -}}
{{- fail "autoscaling.maxReplicas must not be below autoscaling.minReplicas" -}}
{{- end -}}
{{- if lt (int .Values.keda.maxReplicaCount) (int .Values.keda.minReplicaCount) -}}
{{- fail "keda.maxReplicaCount must not be below keda.minReplicaCount" -}}
{{- end -}}
{{- end -}}
