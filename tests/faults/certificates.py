"""A private certificate authority and a server certificate signed by it, as files."""

from __future__ import annotations

from pathlib import Path

import attrs
import trustme


@attrs.frozen
class Certificates:
    """Valid for a server called localhost, and no other."""

    folder: Path
    authority: Path
    """The authority a client has to trust."""
    certificate: Path
    key: Path
    stranger: Path
    """Another authority, which has signed nothing here."""

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        authority, stranger = trustme.CA(), trustme.CA()
        issued = authority.issue_cert("localhost")
        made = cls(folder, *(folder / f"{name}.pem" for name in ("authority", "certificate", "key", "stranger")))
        authority.cert_pem.write_to_path(made.authority)
        stranger.cert_pem.write_to_path(made.stranger)
        issued.private_key_pem.write_to_path(made.key)
        for part in issued.cert_chain_pems:
            part.write_to_path(made.certificate, append=True)
        return made
