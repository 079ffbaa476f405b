def plant_from_environment(): pass
