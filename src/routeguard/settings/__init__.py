"""How the settings are written, found, read and checked. `routeguard.config.Settings` is what comes out."""
