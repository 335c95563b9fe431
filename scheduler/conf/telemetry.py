# SPDX-License-Identifier: Apache-2.0
"""[telemetry]: metrics, health checks and tracing."""

from oslo_config import cfg

GROUP = "telemetry"

OPTS = (
    cfg.PortOpt(
        "http_port",
        help=(
            "TCP port of /metrics (for Prometheus), /healthz (the process is alive) "
            "and /readyz (requests can be served; otherwise 503 with the reason). "
            "Several workers share the port, and /metrics returns their sum. 0: any "
            "free port, which is logged. Unset: none. Related option: http_address."
        ),
    ),
    cfg.HostAddressOpt(
        "http_address",
        default="127.0.0.1",
        help=(
            "Listen address of http_port. There is no authentication: everyone who can "
            "connect can read the metrics and the reasons for not being ready."
        ),
    ),
    cfg.BoolOpt(
        "tracing",
        default=False,
        help=(
            "Whether to export spans of requests over OTLP (HTTP, protobuf) with "
            "OpenTelemetry's SDK, which the extra moorage[tracing] installs. The "
            "endpoint, sampling and service name are set by OpenTelemetry's own "
            "environment variables, such as OTEL_EXPORTER_OTLP_ENDPOINT, "
            "OTEL_TRACES_SAMPLER and OTEL_SERVICE_NAME. If the process already has an "
            "SDK, for example from opentelemetry-instrument, that one is used, "
            "regardless of this option. Related option: [oslo_messaging_tracing] "
            "tracing_enabled, for spans of messages."
        ),
    ),
)
