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
{{- $name := include "concur-proxy.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s names no service: small letters, digits and - between them, a letter first; set fullnameOverride" $name) -}}
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
{{- if and (not .Values.configAsSecret) (regexMatch "://[^/\\s]*:[^/\\s]*@" (toYaml $config)) -}}
{{- fail "config has a URL with a password, and a ConfigMap is no secret: set configAsSecret, or give it by env" -}}
{{- end -}}
{{- if or (dig "server" "tls_cert_file" "" $config) (dig "server" "tls_client_ca_file" "" $config) -}}
{{- fail "config.server.tls_cert_file: use tls.existingSecret, by which probes, routes and monitors know, too" -}}
{{- end -}}
{{- if and (include "concur-proxy.discovers" .) .Values.rbac.create (eq (include "concur-proxy.account" .) "default") -}}
{{- fail "discovery needs an account of its own, or every pod of the namespace gets its rights: leave serviceAccount.create, or set serviceAccount.name" -}}
{{- end -}}
{{- include "concur-proxy.checkEnvironment" . -}}
{{- include "concur-proxy.checkLabels" . -}}
{{- include "concur-proxy.checkBudget" . -}}
{{- include "concur-proxy.checkTls" . -}}
{{- if and .Values.keda.enabled (eq (dig "name" "" .Values.keda.scaleTargetRef) $name) -}}
{{- fail "keda scales engines, and keda.scaleTargetRef names the proxies themselves: use autoscaling for them" -}}
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

{{- define "concur-proxy.checkEnvironment" -}}
{{- $taken := dict
  "CONCUR_CONFIG" "config"
  "CONCUR_SERVER__HOST" "service"
  "CONCUR_SERVER__PORT" "service.port"
  "CONCUR_SERVER__GRACE_S" "config.server.grace_s, which terminationGracePeriodSeconds follows"
  "CONCUR_SERVER__TLS_CERT_FILE" "tls.existingSecret"
  "CONCUR_SERVER__TLS_KEY_FILE" "tls.existingSecret"
  "CONCUR_SERVER__TLS_CLIENT_CA_FILE" "tls.clientCA"
  "CONCUR_AUTH__KEYS_FILE" "auth.existingSecret" -}}
{{- if .Values.redis.enabled -}}
{{- $_ := set $taken "CONCUR_STATE__URL" "redis.enabled or this" -}}
{{- $_ := set $taken "CONCUR_STATE__NAME" "fullnameOverride" -}}
{{- end -}}
{{- if include "concur-proxy.adminSecret" . -}}
{{- $_ := set $taken "CONCUR_SERVER__ADMIN_TOKEN" "admin or this" -}}
{{- end -}}
{{- $seen := dict -}}
{{- range .Values.env -}}
{{- if hasKey $taken .name -}}
{{- fail (printf "env: %s is set by the chart: use %s" .name (get $taken .name)) -}}
{{- end -}}
{{- if hasKey $seen .name -}}
{{- fail (printf "env: %s is given twice" .name) -}}
{{- end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- end -}}

{{- define "concur-proxy.checkLabels" -}}
{{- $own := list "helm.sh/chart" -}}
{{- range list "name" "instance" "version" "managed-by" "component" -}}
{{- $own = append $own (printf "app.kubernetes.io/%s" .) -}}
{{- end -}}
{{- range $where := list "commonLabels" "podLabels" -}}
{{- range $label, $_ := index $.Values $where -}}
{{- if or (has $label $own) (and (eq $where "podLabels") (hasKey $.Values.commonLabels $label)) -}}
{{- fail (printf "%s: %s is set by the chart, which finds its pods by it" $where $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.podAnnotations -}}
{{- if hasPrefix "checksum/" $name -}}
{{- fail (printf "podAnnotations: %s is set by the chart, so that changed settings make new pods" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A budget that lets no pod go keeps nodes from ever being drained. */}}
{{- define "concur-proxy.checkBudget" -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- $least := int (ternary .Values.autoscaling.minReplicas .Values.replicaCount .Values.autoscaling.enabled) -}}
{{- $stays := "" -}}
{{- if not (kindIs "invalid" $budget.maxUnavailable) -}}
{{- if eq (toString $budget.maxUnavailable | trimSuffix "%" | int) 0 -}}{{- $stays = "maxUnavailable 0" -}}{{- end -}}
{{- else -}}
{{- $wanted := $budget.minAvailable -}}
{{- if kindIs "string" $wanted -}}
{{- $wanted = divf (mulf (trimSuffix "%" $wanted | float64) $least) 100 | ceil -}}
{{- end -}}
{{- if and (ge (int $wanted) $least) (gt (int $wanted) 0) -}}{{- $stays = printf "minAvailable %v" $budget.minAvailable -}}{{- end -}}
{{- end -}}
{{- if and $budget.enabled (gt $least 0) $stays -}}
{{- fail (printf "podDisruptionBudget: %s of %d replicas lets none go, and nodes could not be drained: set maxUnavailable: 1" $stays $least) -}}
{{- end -}}
{{- end -}}

{{- define "concur-proxy.checkTls" -}}
{{- if and .Values.httpRoute.enabled .Values.tls.existingSecret (not (dig "hostname" "" .Values.httpRoute.backendTLS)) -}}
{{- fail "httpRoute.backendTLS must tell the gateway how to meet the proxies' certificate: its hostname, and caCertificateRefs or wellKnownCACertificates" -}}
{{- end -}}
{{- range $kind := list "serviceMonitor" "podMonitor" -}}
{{- $monitor := index $.Values.metrics $kind -}}
{{- if and $monitor.enabled $.Values.tls.clientCA (not $monitor.tlsConfig) -}}
{{- fail (printf "metrics.%s.tlsConfig must name a certificate of Prometheus, as tls.clientCA demands one of everybody" $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}
