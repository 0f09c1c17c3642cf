"""Groups in virtual time: members, a coordinator and a broker that are driven, what goes wrong with them, and what is checked."""
