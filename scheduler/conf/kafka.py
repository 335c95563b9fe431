# SPDX-License-Identifier: Apache-2.0
"""[kafka]: the topics with the reports of hosts, and the brokers that hold them."""

from oslo_config import cfg

GROUP = "kafka"

OPTS = (
    cfg.ListOpt(
        "bootstrap_servers",
        default=[],
        sample_default="kafka1:9092,kafka2:9092",
        help=(
            "Brokers (HOST:PORT) that are asked for all others. Required by [moorage] "
            "source = kafka, claims_topic and [agent] transport = kafka, which need "
            "the extra moorage[kafka]."
        ),
    ),
    cfg.StrOpt(
        "topic_prefix",
        default="moorage",
        regex=r"[a-zA-Z0-9._-]{1,200}$",
        help=(
            "Begins the names of the topics of one cloud; another value is for brokers "
            "that serve several clouds. PREFIX-hosts has the newest whole report of "
            "each compute node: its key is the node's UUID, and a message without a "
            "value removes the node. PREFIX-heartbeats has their heartbeats, which are "
            "read back for [DEFAULT] service_down_time at the start; so an hour of "
            "retention is ample. PREFIX-aggregates has the newest state of each host "
            "aggregate, an Aggregate object of nova: its key is the aggregate's id, "
            "and a message without a value removes it. PREFIX-hosts and "
            "PREFIX-aggregates must be compacted (cleanup.policy=compact). No topic is "
            "created by Moorage. Related option: claims_topic."
        ),
    ),
    cfg.StrOpt(
        "claims_topic",
        help=(
            "Topic in which schedulers announce their claims to each other, instead of "
            "on the message bus, with any [moorage] source. All schedulers of a cloud "
            "must have the same. An hour of retention is ample. It is not created by "
            "Moorage. Unset: claims are announced on the message bus. Related option: "
            "bootstrap_servers."
        ),
    ),
    cfg.StrOpt(
        "security_protocol",
        default="plaintext",
        choices=[
            ("plaintext", "no encryption, no authentication"),
            ("ssl", "TLS; with ssl_cert_file, also to authenticate"),
            ("sasl_plaintext", "a user and a password, without encryption"),
            ("sasl_ssl", "a user and a password, over TLS"),
        ],
        help="How to connect to the brokers.",
    ),
    cfg.StrOpt(
        "sasl_mechanism",
        default="SCRAM-SHA-512",
        choices=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
        help=(
            "How the password is proved, with security_protocol = sasl_plaintext or "
            "sasl_ssl. PLAIN sends it."
        ),
    ),
    cfg.StrOpt(
        "sasl_username",
        help="User, with security_protocol = sasl_plaintext or sasl_ssl.",
    ),
    cfg.StrOpt(
        "sasl_password_file",
        help=(
            "File whose first line is the user's password. Only its owner and group "
            "should be able to read it."
        ),
    ),
    cfg.StrOpt(
        "ssl_ca_file",
        help=(
            "PEM file with the certificates of the authorities that the brokers' "
            "certificates are verified with. Unset: those of the system."
        ),
    ),
    cfg.StrOpt(
        "ssl_cert_file",
        help="PEM file with the certificate to present. Related option: ssl_key_file.",
    ),
    cfg.StrOpt(
        "ssl_key_file",
        help="PEM file with the private key of the certificate in ssl_cert_file.",
    ),
    cfg.FloatOpt(
        "relay_grace",
        default=300.0,
        min=0.0,
        help=(
            "Seconds without any moorage-relay for which the hosts behind it keep "
            "their last state, with [moorage] source = kafka. After that they count as "
            "down [DEFAULT] service_down_time seconds after they were last seen, not "
            "counting these. That there is no relay is noticed after half of "
            "service_down_time without its messages."
        ),
    ),
    cfg.FloatOpt(
        "timeout",
        default=10.0,
        min=0.1,
        help=(
            "Seconds to wait for an answer of the brokers: at the start, after which "
            "it fails, and for a report that an agent sends, after which the agent "
            "logs it and sends the next one."
        ),
    ),
)
