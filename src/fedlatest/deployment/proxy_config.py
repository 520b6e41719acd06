"""The configuration of the proxy in front of a SuperLink: which requests nginx passes, and how."""

import getpass
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from fedlatest.deployment.secrets import LOOPBACK, Secrets

FLEET_PATHS = (  # what a SuperNode with a registered key requests; a test compares this with the installed Flower
    "/v1/fleet/activate-node",
    "/v1/fleet/deactivate-node",
    "/v1/fleet/send-node-heartbeat",
    "/v1/fleet/pull-messages",
    "/v1/fleet/push-messages",
    "/v1/fleet/get-run",
    "/v1/fleet/get-fab",
    "/v1/fleet/push-object",
    "/v1/fleet/pull-object",
    "/v1/fleet/confirm-message-received",
)
CLOSED_FLEET_PATHS = (  # what a SuperNode without a key requests to register itself; never passed
    "/v1/fleet/register-node",
    "/v1/fleet/unregister-node",
)
UPLOAD_PATH = "/v1/fleet/push-object"  # the only request with a large body

CONFIG, UNIT = "nginx.conf", "fedlatest-proxy.service"
MARK = "# Written by `fedlatest deploy proxy`"  # at the beginning of both files


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


class Proxy(NamedTuple):
    """What `write_proxy` has written.

    Attributes:
        folder: nginx's prefix, absolute.
        secrets: Certificates and keys that nginx uses.
        hosts: Names and addresses by which nodes reach the proxy.
        port: The port on which nodes reach it.
        superlink: Where it expects the SuperLink.
    """

    folder: Path
    secrets: Secrets
    hosts: tuple[str, ...]
    port: int
    superlink: Address


def next_steps(proxy: Proxy) -> list[tuple[str, str]]:
    """Return what to run next, as (purpose, command)."""
    secrets, superlink = proxy.secrets, proxy.superlink
    outside = [host for host in proxy.hosts if host not in LOOPBACK and not host.startswith("*")] or ["SERVER"]
    start_superlink = [
        "flower-superlink", "--host", superlink.host, "--port", str(superlink.port), "--database", "link.db",
        "--disable-runtime-dependency-installation", "--enable-supernode-auth", "--ssl-ca-certfile", str(secrets.ca),
        "--ssl-certfile", str(secrets.certificate), "--ssl-keyfile", str(secrets.key),
    ]  # fmt: skip
    start_nginx = [nginx_program(), "-p", str(proxy.folder), "-c", CONFIG]
    start_node = [
        "flower-supernode", "--superlink", str(Address(outside[0], proxy.port)), "--root-certificates", "ca.crt",
        "--auth-supernode-private-key", "NODE-KEY", "--node-config", 'state-dir="/var/lib/NAME"',
    ]  # fmt: skip
    return [
        ("start the SuperLink, only on loopback", shlex.join(start_superlink)),
        ("start the proxy", shlex.join(start_nginx)),
        ("stop the proxy", shlex.join([*start_nginx, "-s", "quit"])),
        ("operators on this machine, in Flower's config.toml", f'address = "{superlink}"'),
        ("on each node", shlex.join(start_node)),
    ]


def nginx_program() -> str:
    """Return the path of nginx, which Debian installs outside the PATH of ordinary users."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin") or "nginx"


# Notes on the configuration:
# - The allow-list is compared with the raw request line: a path that nginx would normalise to an allowed one (//, %2f,
#   ..) is refused, and so is a query string. `map` ignores the case of strings, but not of regular expressions (`~`).
#   The locations repeat the path in `proxy_pass`, so that the SuperLink receives it as it is written here.
# - Refused requests get 404: for nodes, 401 means "stop" and 403 means "the run has ended". The limits give 503,
#   after which nodes try again. Refused requests are not logged, so that strangers cannot fill the disk with them.
# - A request is never sent twice, and connections to the SuperLink are not reused: a request that meets a connection
#   that is just being closed would be lost.
# - The SuperLink believes `X-Forwarded-For` of loopback connections, so a value that a client sends is replaced.
# - `proxy_ssl_name` is a name because nginx does not find IP addresses in certificates.
_CONFIG_TEMPLATE = Template("""\
$mark, which explains the settings in its source and in docs/deploy.md.
# Start: nginx -p FOLDER -c nginx.conf    Stop: nginx -p FOLDER -c nginx.conf -s quit
${user}worker_processes auto;
worker_rlimit_nofile 8192;
pid nginx.pid;
error_log error.log error;

events {
    worker_connections 4096;
}

http {
    server_tokens off;
    default_type application/octet-stream;
    access_log off;

    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;

    ssl_certificate "$certificate";
    ssl_certificate_key "$key";
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;
    ssl_session_cache shared:tls:10m;
    ssl_session_tickets off;

    client_header_timeout 20s;
    client_body_timeout 60s;
    send_timeout 60s;
    keepalive_timeout 75s;
    large_client_header_buffers 4 8k;
    limit_conn_zone $$binary_remote_addr zone=connections:10m;
    limit_req_zone $$binary_remote_addr zone=requests:10m rate=200r/s;
    limit_conn_log_level notice;
    limit_req_log_level notice;

    map "$$request_method $$request_uri" $$allowed {
        default 0;
        "~^POST /v1/fleet/($names)\\z" 1;
    }

    server {
$default_listen
        server_name _;
        return 404;
    }

    server {
$listen
        server_name $hosts;
        limit_conn connections $max_connections;
        limit_req zone=requests burst=2000 nodelay;
        client_max_body_size 1m;

        proxy_http_version 1.1;
        proxy_set_header Host localhost;
        proxy_set_header Connection close;
        proxy_set_header X-Forwarded-For $$remote_addr;
        proxy_set_header X-Forwarded-Proto https;
        proxy_ssl_protocols TLSv1.2 TLSv1.3;
        proxy_ssl_trusted_certificate "$ca";
        proxy_ssl_verify on;
        proxy_ssl_name localhost;
        proxy_ssl_server_name on;
        proxy_next_upstream off;
        proxy_connect_timeout 5s;
        proxy_send_timeout 60s;
        proxy_read_timeout 60s;

        if ($$allowed = 0) {
            return 404;
        }
        location / {
            return 404;
        }
$locations
    }
}
""")

_UNIT_TEMPLATE = Template("""\
$mark --systemd. As root: cp FILE /etc/systemd/system/, then systemctl enable --now $unit
[Unit]
Description=Proxy of fedlatest, which passes only nodes to the SuperLink
After=network-online.target
Wants=network-online.target

[Service]
User=$user
ExecStart="$nginx" -p "$folder" -c nginx.conf -g "daemon off;"
Restart=always
RestartSec=5
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths="$folder"
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE

[Install]
WantedBy=multi-user.target
""")


def nginx_config(proxy: Proxy, addresses: Sequence[str], *, max_upload_mib: int, max_connections: int) -> str:
    """Return the text of nginx.conf.

    Args:
        proxy: The proxy.
        addresses: IP addresses on which nginx listens.
        max_upload_mib: Largest request in MiB.
        max_connections: Largest number of simultaneous connections from one address.
    """

    def listen(options: str) -> str:
        lines = [f"        listen {_bracketed(address)}:{proxy.port} {options};" for address in addresses]
        return "\n".join(lines)

    def location(path: str) -> str:
        size = f"            client_max_body_size {max_upload_mib}m;\n" if path == UPLOAD_PATH else ""
        upstream = f"            proxy_pass https://{proxy.superlink}{path};\n"
        return f"        location = {path} {{\n{size}{upstream}        }}"

    return _CONFIG_TEMPLATE.substitute(
        mark=MARK,
        user="user root;\n" if is_root() else "",  # the workers of a master that runs as root must reach the folder
        certificate=proxy.secrets.certificate,
        key=proxy.secrets.key,
        ca=proxy.secrets.ca,
        names="|".join(path.rpartition("/")[2] for path in FLEET_PATHS),
        default_listen=listen("ssl default_server"),
        listen=listen("ssl"),
        hosts=" ".join(_bracketed(host) for host in proxy.hosts),
        max_connections=max_connections,
        locations="\n".join(location(path) for path in FLEET_PATHS),
    )


def systemd_unit(folder: Path) -> str:
    """Return the text of a systemd unit that runs nginx as the current user."""
    return _UNIT_TEMPLATE.substitute(mark=MARK, unit=UNIT, user=getpass.getuser(), nginx=nginx_program(), folder=folder)


def is_root() -> bool:
    """Return whether this process runs as root."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
