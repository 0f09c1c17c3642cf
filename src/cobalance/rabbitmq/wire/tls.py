"""TLS to RabbitMQ: always verified, against the system's authorities or one that the URL names.

The options after the URL's ``?`` have the names of RabbitMQ's URI specification: ``cacertfile``, ``certfile``,
``keyfile`` and ``server_name_indication``. Its ``verify=verify_none`` is refused: anyone in between could read every
message and password.
"""

import ssl

from pika import SSLOptions, URLParameters

from cobalance.errors import UsageError

OPTIONS = frozenset({"cacertfile", "certfile", "keyfile", "server_name_indication", "verify"})


def use_tls(parameters: URLParameters, options: dict[str, str], where: str) -> None:
    """Puts a verifying TLS context into the parameters of an ``amqps://`` URL; refuses anything that would not verify.

    Raises:
        UsageError: a file cannot be read, or the options ask for less than verification, or for TLS on an ``amqp://``
            URL.
    """
    if options.get("verify", "verify_peer") != "verify_peer":
        raise UsageError(_unverified(where))
    if options and parameters.ssl_options is None:
        raise UsageError(f"The AMQP URL for {where} has TLS options, but TLS itself needs amqps:// instead of amqp://.")
    if options:
        context = _context(options, where)
        parameters.ssl_options = SSLOptions(context, options.get("server_name_indication") or None)
    if parameters.ssl_options is not None and not _verifies(parameters.ssl_options.context):
        raise UsageError(_unverified(where))


def _verifies(context: ssl.SSLContext) -> bool:
    return context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


def _context(options: dict[str, str], where: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("cacertfile"))
        if "certfile" in options:
            context.load_cert_chain(options["certfile"], options.get("keyfile"))
    except OSError as error:  # includes ssl.SSLError
        reason = error.strerror or type(error).__name__
    else:
        return context
    files = ", ".join(f"{name}={options[name]}" for name in ("cacertfile", "certfile", "keyfile") if name in options)
    raise UsageError(
        f"The TLS files of the AMQP URL for {where} cannot be used ({reason}): {files}. They must be PEM files."
    )


def _unverified(where: str) -> str:
    return (
        f"The AMQP URL for {where} asks for TLS without verification, which protects from nobody; "
        "name the authority that signed the server's certificate instead: ?cacertfile=/path/to/ca.pem."
    )
