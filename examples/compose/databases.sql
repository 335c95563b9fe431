-- Run once by the image of MariaDB, when its data directory is new.
CREATE DATABASE moorage;
CREATE DATABASE placement;
CREATE USER moorage IDENTIFIED BY 'trial';
CREATE USER placement IDENTIFIED BY 'trial';
GRANT ALL ON moorage.* TO moorage;
GRANT ALL ON placement.* TO placement;
GRANT SELECT ON placement.* TO moorage;
