"""What a step costs on given hardware: profiles as data, and the cost model over them."""
