"""The parts that models are made of: distributions of rows within a component."""
