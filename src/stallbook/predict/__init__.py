"""What a fix would buy: the engine of a recorded run, simulated with other settings."""
