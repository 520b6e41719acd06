"""The options --device, --devices, --hosts, --host-id and --coordinator: which devices share the work."""

from fedlatest.cli.app import check_device, configure_device, err, out
from fedlatest.errors import ConfigError
from fedlatest.machine import num_cores


def use_devices(
    device: str | None,
    devices: str | None = None,
    *,
    hosts: str | None = None,
    host_id: int | None = None,
    coordinator: str | None = None,
) -> int | None:
    """Make JAX use some devices, connect the hosts, and silence all processes but the first.

    Args:
        device: The kind of device, cpu or gpu; None leaves the choice to JAX.
        devices: How many devices of each host, or "all"; a CPU has as many as it has cores, or more on request.
        hosts: How many hosts there are; "auto" if Slurm or Open MPI provides this and the next two values.
        host_id: The number of this host, from 0 on.
        coordinator: Address and port of host 0.

    Returns:
        The number of devices of each host; None if the choice is left to the simulator.
    """
    _check(devices, hosts, host_id, coordinator)
    number = 1 if devices is None else num_cores() if devices == "all" else int(devices)
    configure_device(device, num_cpu_devices=number)
    if hosts is not None:
        from fedlatest.simulation.processes import connect, is_first

        connect(coordinator, None if hosts == "auto" else int(hosts), host_id)
        out.quiet = err.quiet = not is_first()
    check_device(device)
    if devices == "all":
        import jax

        number = jax.local_device_count()
    return None if devices is None else number


def _check(devices: str | None, hosts: str | None, host_id: int | None, coordinator: str | None) -> None:
    if devices not in (None, "all") and not _is_positive(devices):
        raise ConfigError(f"--devices {devices}: must be a whole number of at least 1, or all")
    if hosts not in (None, "auto") and not _is_positive(hosts):
        raise ConfigError(f"--hosts {hosts}: give the number of hosts, or auto under Slurm or Open MPI")
    if hosts in (None, "auto") and not (host_id is None and coordinator is None):
        raise ConfigError("--host-id, --coordinator: only with --hosts N, the number of hosts")
    if _is_positive(hosts) and (host_id is None or coordinator is None):
        raise ConfigError("--hosts: also give --host-id (0, 1, ...) and --coordinator (ADDRESS:PORT of host 0)")
    if coordinator is not None and not coordinator.rpartition(":")[2].isdecimal():
        raise ConfigError(f"--coordinator {coordinator}: give ADDRESS:PORT, such as node1:5000")


def _is_positive(text: str | None) -> bool:
    return text is not None and text.isdecimal() and int(text) >= 1
