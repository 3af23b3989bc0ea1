from hogwild_sgl.cli import main

main()
